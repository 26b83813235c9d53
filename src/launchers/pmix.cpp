#include "src/launchers/pmix.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/launchers/mpi_library.hpp"

namespace weft::internal {

namespace {

// PMIx's types and numbers that are used here; its ABI has had them since version 2 (pmix_common.h).
struct PmixProcess {
    char job[256];
    uint32_t rank;
};
struct PmixValue {
    uint16_t type;
    union {
        bool flag;
        char* text;
        uint16_t u16;
        uint32_t u32;
        void* room[3];  // the largest member has three words
    } data;
};
struct PmixInfo {
    char key[512];
    uint32_t flags;
    PmixValue value;
};
constexpr uint16_t bool_type = 1, text_type = 3, u16_type = 13, u32_type = 14;
constexpr uint8_t global_scope = 3;
constexpr uint32_t wildcard_rank = UINT32_MAX - 1;
constexpr const char* pmix_id_key = "weft.unique_id";

struct PmixLibrary {
    int (*init)(PmixProcess*, PmixInfo*, size_t);
    int (*finalize)(const PmixInfo*, size_t);
    int (*put)(uint8_t, const char*, PmixValue*);
    int (*commit)();
    int (*fence)(const PmixProcess*, size_t, const PmixInfo*, size_t);
    int (*get)(const PmixProcess*, const char*, const PmixInfo*, size_t, PmixValue**);
    const char* (*error_text)(int);
};

std::vector<std::string> places(const std::string& library) {
    const std::string name = "libpmix.so.2";
    if (!library.empty()) return {library};
    std::vector<std::string> prefixes, paths;
    for (const char* variable : {"PMIX_PREFIX", "OPAL_PREFIX", "PRTE_PREFIX"})
        if (const auto prefix = environment(variable)) prefixes.push_back(*prefix);
    // The launcher's daemon (prterun, prted, orted) is usually our parent, and lies in its installation's bin.
    char path[4096];
    const ssize_t length = readlink(fmt::format("/proc/{}/exe", getppid()).c_str(), path, sizeof path);
    const std::string program(path, size_t(std::max<ssize_t>(length, 0)));
    if (const size_t end = program.rfind("/bin/"); end != std::string::npos) prefixes.push_back(program.substr(0, end));
    for (const std::string& prefix : prefixes)
        for (const char* folder : {"lib", "lib/openmpi", "lib64", "lib64/openmpi"})
            paths.push_back(fmt::format("{}/{}/{}", prefix, folder, name));
    paths.push_back(name);  // the loader's path
    return paths;
}

// Stays loaded: libpmix keeps state for the life of a process.
void* open_library(const std::string& library) {
    const StandardNumbers held;
    // A library that MPI has loaded comes first: two in one process would be two clients of one rank.
    if (void* handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD); handle && library.empty()) return handle;
    for (const std::string& place : places(library))
        if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    return nullptr;
}

template <class Function>
bool find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    return function != nullptr;
}

bool find_functions(void* handle, PmixLibrary& library) {
    return find(handle, "PMIx_Init", library.init) && find(handle, "PMIx_Finalize", library.finalize) &&
           find(handle, "PMIx_Put", library.put) && find(handle, "PMIx_Commit", library.commit) &&
           find(handle, "PMIx_Fence", library.fence) && find(handle, "PMIx_Get", library.get) &&
           find(handle, "PMIx_Error_string", library.error_text);
}

// One session, on a thread of its own because the library's calls have no deadline.
struct Session {
    PmixLibrary library;
    int rank;
    std::string text;
    std::atomic<const char*> step{"its start"};
    std::mutex mutex;
    std::condition_variable changed;
    // Under the mutex:
    bool done = false;
    Status status;
    PmixShared result;

    Status call(const char* what, int code) const {
        if (code == 0) return ok();
        return fail(error::launcher_lost, "PMIx, {}: {} ({})", what, library.error_text(code), code);
    }
    int number(const PmixProcess& of, const char* key) const {
        PmixValue* value = nullptr;
        if (library.get(&of, key, nullptr, 0, &value) != 0 || !value) return -1;
        if (value->type == u32_type) return int(value->data.u32);
        return value->type == u16_type ? int(value->data.u16) : -1;
    }
    // The values that get() returns are not freed: they are small, and the library has the allocator.
    Status exchange(const PmixProcess& self, PmixShared& found) {
        if (rank == 0) {
            PmixValue value{};
            value.type = text_type;
            value.data.text = text.data();
            char key[sizeof PmixInfo::key] = {};  // the library may copy all of it
            strcpy(key, pmix_id_key);
            WEFT_TRY(call("putting the unique id", library.put(global_scope, key, &value)));
        }
        WEFT_TRY(call("committing", library.commit()));
        PmixInfo collect{};
        strcpy(collect.key, "pmix.collect");
        collect.value.type = bool_type;
        collect.value.data.flag = true;
        step = "all ranks at a fence: do all run, and call Weft?";
        WEFT_TRY(call("the fence of all ranks", library.fence(nullptr, 0, &collect, 1)));
        step = "rank 0's unique id";
        PmixProcess root = self;
        root.rank = 0;
        PmixValue* value = nullptr;
        WEFT_TRY(call("rank 0's unique id", library.get(&root, pmix_id_key, nullptr, 0, &value)));
        if (!value || value->type != text_type || !value->data.text)
            return fail(error::launcher_lost, "PMIx: rank 0's unique id is no text");
        found.shared.text = value->data.text;
        PmixProcess all = self;
        all.rank = wildcard_rank;
        found.ranks = number(all, "pmix.job.size");
        found.local_size = number(all, "pmix.local.size");
        found.local_rank = number(self, "pmix.lrank");
        return ok();
    }
    void run() {
        PmixProcess self{};
        PmixShared found;
        const StandardNumbers held;
        Status failure = call("the beginning of a session", library.init(&self, nullptr, 0));
        if (failure) {
            failure = exchange(self, found);
            // libpmix allows no second session in a process, but a launcher kills a job whose process leaves one open.
            library.finalize(nullptr, 0);
        }
        std::lock_guard lock(mutex);
        status = std::move(failure);
        result = std::move(found);
        done = true;
        changed.notify_one();
    }
};

}  // namespace

Result<PmixShared> exchange_by_pmix(const std::string& library, const IdExchange& exchange) {
    const MpiState mpi = mpi_state();
    if (mpi == MpiState::finalized)
        return PmixShared{no_id_transport("MPI was finalized, and PMIx with it"), -1, -1, -1};
    if (mpi == MpiState::loaded)
        WEFT_LOG_RANK(exchange.rank, warn, init,
                      "an MPI library is loaded and not initialized: MPI_Init after this may crash in libpmix, so call "
                      "it before Weft");
    void* handle = open_library(library);
    if (!handle && !library.empty())
        return fail(error::option_unloadable, "WEFT_PMIX_LIBRARY is `{}`, which cannot be loaded: {}", library,
                    dlerror());
    if (!handle)
        return PmixShared{no_id_transport("libpmix.so.2 was not found; WEFT_PMIX_LIBRARY may name it"), -1, -1, -1};
    auto session = std::make_shared<Session>();
    if (!find_functions(handle, session->library))
        return fail(error::launcher_pmix, "libpmix.so.2 lacks functions of PMIx: {}", dlerror());
    session->rank = exchange.rank;
    session->text = exchange.text;
    std::thread([session] { session->run(); }).detach();
    std::unique_lock lock(session->mutex);
    const auto done = [&] { return session->done; };
    if (const int left_ms = exchange.deadline.remaining_ms(); left_ms < 0) {
        session->changed.wait(lock, done);
    } else if (!session->changed.wait_for(lock, std::chrono::milliseconds(left_ms), done)) {
        return fail(error::launcher_timeout, "PMIx: waited {} ms for {}", exchange.deadline.all_ms(),
                    session->step.load());
    }
    WEFT_TRY(std::move(session->status));
    return std::move(session->result);
}

}  // namespace weft::internal
