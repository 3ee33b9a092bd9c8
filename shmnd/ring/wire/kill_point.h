/* SPDX-License-Identifier: Apache-2.0
 *
 * Named points at which a test can end the process as SIGKILL would.
 *
 * Without SHMND_KILL_POINTS the macro expands to nothing. A test build defines
 * SHMND_KILL_POINTS and provides shmnd_kill_point().
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
