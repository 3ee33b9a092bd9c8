# SPDX-License-Identifier: Apache-2.0
"""Build the module of this folder: python setup.py build_ext --inplace."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import shmnd

modules = [Extension("ping_pong", ["ping_pong.pyx"], include_dirs=[shmnd.get_include()])]
# Cython searches sys.path for shmnd/native.pxd, where an editable install of shmnd is not.
folder = str(Path(shmnd.__file__).parents[1])
setup(name="ping_pong", ext_modules=cythonize(modules, include_path=[folder], quiet=True))
