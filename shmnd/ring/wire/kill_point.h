/* SPDX-License-Identifier: Apache-2.0
 *
 * Named places at which a test may end the process, as SIGKILL would there.
 *
 * Nothing in any other build: the name vanishes with its argument. In a test
 * build (SHMND_KILL_POINTS defined) whoever builds gives the function.
 */
#ifndef SHMND_WIRE_KILL_POINT_H
#define SHMND_WIRE_KILL_POINT_H

#ifdef SHMND_KILL_POINTS
void shmnd_kill_point(const char *name);
#define SHMND_KILL_POINT(name) shmnd_kill_point(name)
#else
#define SHMND_KILL_POINT(name) ((void)0)
#endif

#endif
