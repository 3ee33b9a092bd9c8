/* SPDX-License-Identifier: Apache-2.0
 *
 * The peer that lies (tests/native/hostile.h), led by coverage: each input is
 * one run. Built with libFuzzer, or plain, to run the inputs that it is given.
 */
#include "../native/hostile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hostile_run(data, size);
    return 0;
}

#ifdef SHMND_REPLAY
int main(int argc, char **argv)
{
    static uint8_t bytes[1 << 16];
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        CHECK(file);
        size_t count = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        NOTE("%s", argv[i]);
        LLVMFuzzerTestOneInput(bytes, count);
    }
    printf("%d inputs replayed\n", argc - 1);
    return 0;
}
#endif
