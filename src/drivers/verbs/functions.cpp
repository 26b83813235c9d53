#include "src/drivers/verbs/functions.hpp"

#include "src/drivers/library.hpp"
#include "src/drivers/verbs/numbers.hpp"

namespace weft::internal::verbs {

namespace {

// The first missing function of those that a transport needs, or null.
const char* missing_function(const abi::Functions& all) {
    const char* missing = nullptr;
    bool optional = false;
#define WEFT_VERBS_FUNCTION(result, name, arguments)                   \
    optional = optional || std::string_view(#name) == "ibv_query_gid"; \
    if (!optional && missing == nullptr && all.name == nullptr) missing = #name;
#include "src/drivers/verbs/functions.def"
#undef WEFT_VERBS_FUNCTION
    return missing;
}

}  // namespace

Result<Functions> load_functions(const std::string& path) {
    const std::string name = path.empty() ? "libibverbs.so.1" : path;
    if (name == "none") return fail(error::driver_disabled, "WEFT_VERBS_LIBRARY is none");
    Result<DynamicLibrary> library = DynamicLibrary::open(name);
    if (!library) return fail(error::driver_missing, "no libibverbs: {}", library.status().sentence());
    auto all = std::make_shared<abi::Functions>();
#define WEFT_VERBS_FUNCTION(result, name, arguments) \
    all->name = reinterpret_cast<decltype(all->name)>(library->find(#name));
#include "src/drivers/verbs/functions.def"
#undef WEFT_VERBS_FUNCTION
    if (!all->ibv_get_device_list || !all->ibv_free_device_list || !all->ibv_open_device || !all->ibv_close_device ||
        !all->ibv_query_device || !all->ibv_query_port)
        return fail(error::driver_missing, "no libibverbs: {} is another library, or too old", name);
    library->keep();  // its device drivers stay registered with it
    return Functions(std::move(all));
}

Result<Functions> load_transport_functions(const std::string& path) {
    Result<Functions> functions = load_functions(path);
    if (!functions) return functions;
    const abi::Functions& all = **functions;
    if (const char* missing = missing_function(all))
        return fail(error::driver_missing, "libibverbs lacks {}: it is another library, or too old", missing);
    // Without the question the kernel may be an old one, too.
    const bool unneeded = all.ibv_is_fork_initialized && all.ibv_is_fork_initialized() != fork_disabled;
    if (!unneeded && all.ibv_fork_init) {
        if (const int error = all.ibv_fork_init())
            return fail(error::verbs_call,
                        "libibverbs cannot protect registered memory against fork() (ibv_fork_init: {}); another "
                        "library has registered memory before, so call Weft first or set IBV_FORK_SAFE to 1",
                        errno_text(error));
    }
    return functions;
}

}  // namespace weft::internal::verbs
