#include "transports/ucx/library.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

#include "src/base/environment.hpp"
#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/library.hpp"

namespace weft::internal::ucx {

namespace {

// UCX reads its variables when it is loaded. These keep it out of the user's process: no signal handlers, no patches of
// mmap, no file system for debugging, and no log on the standard output. A value of the user's counts.
class Quiet {
  public:
    Quiet() {
        for (int index = 0; index < count; ++index) {
            set_[index] = !environment(settings[index][0]);
            if (set_[index]) setenv(settings[index][0], settings[index][1], 1);
        }
    }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    ~Quiet() {
        for (int index = 0; index < count; ++index)
            if (set_[index]) unsetenv(settings[index][0]);
    }

  private:
    static constexpr int count = 5;
    static constexpr const char* settings[count][2] = {{"UCX_HANDLE_ERRORS", "none"},
                                                       {"UCX_ERROR_SIGNALS", ""},
                                                       {"UCX_MEM_MMAP_HOOK_MODE", "none"},
                                                       {"UCX_VFS_ENABLE", "n"},
                                                       {"UCX_LOG_FILE", "stderr"}};
    bool set_[count] = {};
};

Status unusable(std::string_view why) { return fail(error::ucx_unusable, "UCX cannot be used: {}", why); }

// Whether UCX's shared memory is among its transports. UCX warns of settings of a transport that it does not use.
bool uses_shared_memory() {
    const std::string transports = environment("UCX_TLS").value_or("^");
    if (transports[0] == '^') return true;
    static constexpr std::string_view names[] = {"all", "sm", "shm", "mm", "posix", "sysv"};
    const NameList chosen(transports);
    return std::any_of(chosen.allowed.begin(), chosen.allowed.end(), [](std::string_view each) {
        return std::find(std::begin(names), std::end(names), each) != std::end(names);
    });
}

Status make_context(Library& library) {
    ucp_config_t* config = nullptr;
    if (const ucs_status_t status = library.ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
        return unusable("its settings cannot be read: " + library.text(status));
    // Without it UCX leaves shared memory out, because the endpoints must notice dead peers.
    if (uses_shared_memory() && !environment("UCX_MM_ERROR_HANDLING"))
        (void)library.ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    params.mt_workers_shared = 1;
    params.name = "weft";
    const ucs_status_t status =
        library.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &library.context);
    library.ucp_config_release(config);
    if (status == UCS_OK) return ok();
    return unusable(
        fmt::format("it makes no context: {}; UCX_TLS and UCX_NET_DEVICES choose its transports, and "
                    "`ucx_info -d` lists them",
                    library.text(status)));
}

Result<Library> open_library() {
    const Quiet quiet;
    auto opened = DynamicLibrary::open("libucp.so.0");
    if (!opened) return unusable(opened.status().sentence());
    Library library;
    const char* missing = nullptr;
#define WEFT_UCX_FUNCTION(name)                                                   \
    library.name = reinterpret_cast<decltype(library.name)>(opened->find(#name)); \
    if (!library.name) missing = #name;
#include "transports/ucx/functions.def"
#undef WEFT_UCX_FUNCTION
    opened->keep();
    if (missing) return unusable(fmt::format("it lacks {}: version 1.13 or newer is needed", missing));
    WEFT_TRY(make_context(library));
    WEFT_LOG(info, net, "the transport ucx uses UCX {}", library.ucp_get_version_string());
    return library;
}

struct Known {
    std::once_flag once;
    std::optional<Result<Library>> library;
};

}  // namespace

const Result<Library>& library_of_process() {
    static PerProcess<Known> processes;
    Known& known = processes.get();
    std::call_once(known.once, [&] { known.library.emplace(open_library()); });
    return *known.library;
}

}  // namespace weft::internal::ucx
