// call_path.c: two ranks all-reduce 1 MiB, and a recorder keeps the functions that the warm calls enter.
// tools/call_path builds it. Arguments: the number of recorded calls, then the output file of each rank.
// A line holds two offsets in the library (the function, its first caller) and the number of calls that entered it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

enum { most_functions = 1 << 14, most_frames = 1 << 10, elements = (1 << 20) / sizeof(float), warm_ups = 8 };

static struct {
    char* function;
    char* caller;
    int calls, last_call;
} functions[most_functions];
static int call_number;  // 0: the recorder is off
static __thread int recording, depth;
static __thread char* frames[most_frames];

void __cyg_profile_func_enter(void* function, void* site) {
    (void)site;
    if (!recording) return;
    if (depth == most_frames) abort();
    frames[depth++] = function;
    size_t i = ((uintptr_t)function >> 2) % most_functions;
    while (functions[i].function && functions[i].function != function) i = (i + 1) % most_functions;
    if (!functions[i].function) {
        functions[i].function = function;
        functions[i].caller = depth > 1 ? frames[depth - 2] : NULL;
    }
    if (functions[i].last_call == call_number) return;
    functions[i].last_call = call_number;
    ++functions[i].calls;
}

void __cyg_profile_func_exit(void* function, void* site) {
    (void)function, (void)site;
    if (recording && depth > 0) --depth;
}

static void expect(int good, const char* what) {
    if (good) return;
    fprintf(stderr, "call_path: %s failed: %s\n", what, weftGetLastError(NULL));
    exit(1);
}

static void write_functions(const char* path) {
    FILE* file = fopen(path, "w");
    expect(file != NULL, path);
    Dl_info info;
    expect(dladdr((void*)weftAllReduce, &info) != 0, "dladdr");
    char* base = info.dli_fbase;
    for (int i = 0; i < most_functions; ++i) {
        if (!functions[i].function) continue;
        const long caller = functions[i].caller ? (long)(functions[i].caller - base) : 0;
        fprintf(file, "%lx %lx %d\n", (long)(functions[i].function - base), caller, functions[i].calls);
    }
    expect(fclose(file) == 0, path);
}

static void run(int rank, const weftUniqueId* id, int calls, const char* path) {
    weftComm_t comm;
    expect(weftCommInitRank(&comm, 2, *id, rank) == weftSuccess, "weftCommInitRank");
    float *send = calloc(elements, sizeof(float)), *receive = calloc(elements, sizeof(float));
    expect(send && receive, "calloc");
    for (int i = 1; i <= warm_ups + calls; ++i) {
        // The ranks take turns at being late, so that the other one waits.
        if (i % 2 == rank) usleep(20000);
        call_number = i;
        recording = i > warm_ups;
        const weftResult_t result = weftAllReduce(send, receive, elements, weftFloat32, weftSum, comm, NULL);
        recording = depth = 0;
        expect(result == weftSuccess, "weftAllReduce");
    }
    write_functions(path);
    expect(weftCommDestroy(comm) == weftSuccess, "weftCommDestroy");
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const int calls = atoi(argv[1]);
    int ends[2];
    weftUniqueId id;
    expect(pipe(ends) == 0, "pipe");
    alarm(300);
    const pid_t child = fork();
    expect(child >= 0, "fork");
    if (child == 0) {
        expect(read(ends[0], &id, sizeof id) == sizeof id, "read");
        run(1, &id, calls, argv[3]);
        return 0;
    }
    expect(weftGetUniqueId(&id) == weftSuccess, "weftGetUniqueId");
    expect(write(ends[1], &id, sizeof id) == sizeof id, "write");
    run(0, &id, calls, argv[2]);
    int status = 1;
    expect(waitpid(child, &status, 0) == child, "waitpid");
    return status != 0;
}
