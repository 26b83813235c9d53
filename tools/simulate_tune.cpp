#include "tools/simulate_tune.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <optional>

#include "src/base/file.hpp"
#include "src/base/printing.hpp"
#include "src/control/agreed_texts.hpp"
#include "src/selector/tuning_file.hpp"
#include "src/selector/tuning_text.hpp"
#include "tools/algorithm_named.hpp"
#include "tools/tune_ranks.hpp"

namespace weft::internal::tools {

namespace {

std::vector<uint64_t> sizes_up_to(uint64_t most) {
    std::vector<uint64_t> sizes;
    for (uint64_t bytes = 8; bytes <= most; bytes = next_tuned_size(bytes)) sizes.push_back(bytes);
    if (sizes.empty()) sizes.push_back(most);
    return sizes;
}

Status check_ranks(const Scene& scene) {
    if (scene.kind.devices)
        return fail(error::command_option,
                    "--tune is for ranks that are threads, as on a --host cpu-10g; calls on device memory do not use a "
                    "tuning file");
    if (scene.layout.ranks < 2 || scene.layout.ranks > Tuning::ranks_most)
        return fail(error::command_option, "--tune is for 2 to {} ranks, not for {}", Tuning::ranks_most,
                    scene.layout.ranks);
    if (scene.layout.hosts != layout_in_blocks(scene.layout.ranks, scene.hosts).hosts)
        return fail(error::command_option, "--tune needs hosts with equal numbers of ranks");
    return ok();
}

// Each rank has a core.
Tuning tuning_of(const Scene& scene) {
    Tuning tuning;
    tuning.version = tuning_of_here().version;
    tuning.simulated = fmt::format("{} {}", scene.hosts, scene.machines);
    tuning.machine_cores = tuning.cores = scene.layout.ranks / scene.hosts;
    tuning.link_mbps = int64_t(std::clamp(8 * scene.net_bytes_per_us, 1.0, double(INT_MAX)));
    tuning.uses_cma = true;
    tuning.constants = tuning.built_in();
    return tuning;
}

}  // namespace

Status write_simulated_tuning(SimulateRequest request, const SimulateRows& rows_of) {
    std::vector<Collective> collectives(std::begin(all_collectives), std::end(all_collectives));
    if (!request.collective.empty()) {
        const auto meant = collective_meant(request.collective);
        if (!meant) return fail(error::command_option, "collective `{}` does not exist", request.collective);
        collectives = {*meant};
    }
    const std::vector<uint64_t> sizes = sizes_up_to(request.bytes);
    std::optional<Tuning> tuning;
    for (const Collective collective : collectives) {
        request.collective = name_of(collective);
        std::vector<Tuning::Curve> curves;
        for (const uint64_t size : sizes) {
            request.bytes = size;
            const auto simulated = rows_of(request);
            if (!simulated) return simulated.status().copy();
            const Scene& scene = simulated->scene;
            WEFT_TRY(check_ranks(scene));
            if (!tuning) tuning = tuning_of(scene);
            for (const SimulatedRow& row : simulated->rows) {
                if (!row.found || !(row.found->us > 0)) continue;
                auto curve = std::find_if(curves.begin(), curves.end(),
                                          [&](const Tuning::Curve& known) { return known.algorithm == row.row->name; });
                if (curve == curves.end())
                    curve = curves.insert(curve, {collective, row.row->name, scene.layout.ranks, scene.hosts, {}});
                const bool sized = collective != Collective::barrier;
                curve->points.push_back(
                    {sized ? size_t(size) : size_t(parts_of(collective, scene.layout.ranks)), row.found->us});
            }
            if (collective == Collective::barrier) break;
        }
        if (tuning) tuning->curves.insert(tuning->curves.end(), curves.begin(), curves.end());
    }
    const std::string text = tuning_text(*tuning);
    if (text.size() > AgreedTexts::tuning_bytes_most)
        return fail(error::command_option, "the file would have {} KiB, but a rank reads at most {} KiB",
                    text.size() >> 10, AgreedTexts::tuning_bytes_most >> 10);
    WEFT_TRY(write_file(request.tune, text));
    print_output("{} is written, of {} ranks on {}: WEFT_TUNE_FILE={} makes programs there use it\n", request.tune,
                 tuning->curves.empty() ? 0 : tuning->curves[0].ranks, tuning->simulated, request.tune);
    return ok();
}

}  // namespace weft::internal::tools
