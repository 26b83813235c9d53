// fake_pmix.cpp: libpmix.so.2 under test: one rank of two, whose other half is this library. WEFT_TEST_PMIX says what
// goes wrong: "FUNCTION hang", "FUNCTION fail" or nothing.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace {

struct Process {
    char job[256];
    uint32_t rank;
};
struct Value {
    uint16_t type;
    union {
        char* text;
        uint16_t u16;
        uint32_t u32;
        void* room[3];
    } data;
};
struct Info {
    char key[512];
    uint32_t flags;
    Value value;
};

std::atomic<int> sessions{0};
// Leaked: a thread that hangs in here outlives main. `fenced` is the text that rank 0 put, also if rank 0 is another
// process.
std::string &put_value = *new std::string, &committed = *new std::string, &fenced = *new std::string(256, 'a');
Value answer;

int outcome(const char* function) {
    const char* request = getenv("WEFT_TEST_PMIX");
    if (!request || std::string(request).rfind(std::string(function) + " ", 0) != 0) return 0;
    if (strstr(request, "hang"))
        while (true) pause();
    return -25;
}

}  // namespace

extern "C" {

int fake_pmix_sessions() { return sessions; }

int PMIx_Init(Process* self, Info*, size_t) {
    if (int code = outcome("PMIx_Init")) return code;
    ++sessions;
    strcpy(self->job, "fake@1");
    self->rank = uint32_t(atoi(getenv("PMIX_RANK") ? getenv("PMIX_RANK") : "0"));
    return 0;
}
int PMIx_Finalize(const Info*, size_t) { return --sessions, 0; }
int PMIx_Put(uint8_t scope, const char* key, Value* value) {
    if (scope != 3 || strcmp(key, "weft.unique_id") != 0 || value->type != 3) return -1;
    put_value = value->data.text;
    return outcome("PMIx_Put");
}
int PMIx_Commit() {
    committed = put_value;
    return outcome("PMIx_Commit");
}
int PMIx_Fence(const Process*, size_t, const Info* info, size_t count) {
    if (count != 1 || strcmp(info->key, "pmix.collect") != 0) return -1;
    if (!committed.empty()) fenced = committed;
    // Ranks that are processes of their own meet in a file.
    if (const char* place = getenv("WEFT_TEST_PMIX_STORE")) {
        const std::string path = place, fresh = path + ".new";
        if (!committed.empty()) {
            std::ofstream(fresh) << committed;
            rename(fresh.c_str(), path.c_str());
        }
        while (access(path.c_str(), R_OK) != 0) usleep(1000);
        std::ifstream(path) >> fenced;
    }
    return outcome("PMIx_Fence");
}
int PMIx_Get(const Process* of, const char* key, const Info*, size_t, Value** value) {
    *value = &answer;
    const std::string name = key;
    if (int code = outcome("PMIx_Get")) return code;
    if (name == "weft.unique_id" && of->rank == 0) {
        answer.type = outcome("type") ? 4 : 3;
        answer.data.text = fenced.data();
    } else if (of->rank == UINT32_MAX - 1 && (name == "pmix.job.size" || name == "pmix.local.size")) {
        answer.type = 14;
        answer.data.u32 = outcome("size") ? 1 : 2;
    } else if (name == "pmix.lrank") {
        answer.type = 13;
        answer.data.u16 = uint16_t(of->rank);
    } else {
        return -46;
    }
    return 0;
}
const char* PMIx_Error_string(int code) { return code == -25 ? "UNREACHABLE" : "OTHER"; }
}
