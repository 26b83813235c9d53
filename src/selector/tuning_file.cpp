#include "src/selector/tuning_file.hpp"
#include "src/selector/tuning_text.hpp"

#include <unistd.h>

#include <mutex>

#include "src/base/build_facts.hpp"
#include "src/base/cpu.hpp"
#include "src/base/file.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/peer_access/limits.hpp"

namespace weft::internal {

namespace {

// A hundred times the size of a file of `weft tune`.
constexpr size_t file_bytes_most = size_t(4) << 20;

// Why the tuning does not apply to this process; empty: it does.
std::string inapplicable(const Tuning& tuning) {
    const Tuning here = tuning_of_here();
    const bool measured = tuning.simulated.empty();
    if (measured && (tuning.processor != here.processor || tuning.machine_cores != here.machine_cores))
        return fmt::format("was measured on a machine of {} cores of {}, and this one has {} of {}",
                           tuning.machine_cores, tuning.processor, here.machine_cores, here.processor);
    if (tuning.version != here.version)
        return fmt::format("was {} by Weft {}, and this is {}", measured ? "measured" : "simulated", tuning.version,
                           here.version);
    return {};
}

Result<std::shared_ptr<const Tuning>> load(const std::string& name) {
    auto text = read_file(name, file_bytes_most);
    if (!text) return fail(text.status(), "WEFT_TUNE_FILE: {}", text.status().sentence());
    auto tuning = read_tuning(*text);
    if (!tuning)
        return fail(error::option_tuning_file,
                    "WEFT_TUNE_FILE: {} was not made by `weft tune`: {}; make it with `weft tune "
                    "-o {}`",
                    name, tuning.status().sentence(), name);
    return std::make_shared<const Tuning>(std::move(*tuning));
}

// Once for all communicators of a process.
void warn_of_file_once(const std::string& sentence) {
    static PerProcess<std::once_flag> warned;
    std::call_once(warned.get(), [&] { WEFT_LOG(warn, algo, "{}", sentence); });
}

}  // namespace

Tuning tuning_of_here() {
    Tuning here;
    here.version = library_version();
    here.processor = cpu_model();
    here.machine_cores = int(sysconf(_SC_NPROCESSORS_ONLN));
    here.cores = allowed_cores();
    here.uses_cma = cma_messages_wanted(options().cross_memory);
    here.constants = here.built_in();
    return here;
}

Result<std::shared_ptr<const Tuning>> tuning_of_file(const std::string& name) {
    if (name.empty() || name == "none") return std::shared_ptr<const Tuning>();
    auto tuning = shared_by_process<const Tuning>(name, [&] { return load(name); });
    if (!tuning) return tuning;
    if (const std::string why = inapplicable(**tuning); !why.empty()) {
        warn_of_file_once(fmt::format("WEFT_TUNE_FILE: {} {}: the built-in costs are used; {}", name, why,
                                      (*tuning)->simulated.empty()
                                          ? fmt::format("measure anew with `weft tune -o {}`", name)
                                          : "simulate anew with `weft schedule simulate --tune`"));
        return std::shared_ptr<const Tuning>();
    }
    static PerProcess<std::once_flag> noted;
    std::call_once(noted.get(), [&] {
        for (const std::string& note : (*tuning)->notes) WEFT_LOG(warn, algo, "WEFT_TUNE_FILE: {}: {}", name, note);
    });
    return tuning;
}

}  // namespace weft::internal
