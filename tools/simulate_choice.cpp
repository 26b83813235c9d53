#include "tools/simulate_choice.hpp"

#include <fmt/core.h>

#include "src/gpu/engine/device_plan.hpp"
#include "src/registry.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"

namespace weft::internal::tools {

namespace {

// As GpuJoin::plan() chooses if the devices have room for all blocks of the kernels.
Result<WeftChoice> choice_on_devices(const Operation& operation, const Scene& scene, int64_t link_mbps) {
    if (scene.layout.ranks > cuda::ranks_max)
        return fail(error::usage_limit, "device memory is served for up to {} ranks", cuda::ranks_max);
    DeviceLayout layout{scene.layout.ranks, cuda::blocks_max, ""};
    layout.hosts = scene.layout.host_count();
    // An algorithm that WEFT_ALGO alone would select also counts where fused kernels serve.
    const auto is_asked = [&](Collective collective) { return collective == operation.collective; };
    StepAlgorithms steps = step_algorithms({.rows = registry::algorithms(),
                                            .own = is_asked,
                                            .blocks_max = cuda::blocks_max,
                                            .link_mbps = scene.network ? scene.link_mbps : link_mbps,
                                            .network = scene.network,
                                            .links_gbs = layout.hosts == 1 ? scene.links_gbs : 0,
                                            .net_links = scene.net_links},
                                           scene.layout, 0);
    layout.steps = std::move(steps.rows);
    layout.excluded = std::move(steps.excluded);
    auto plan = plan_on_device(operation, layout);
    if (!plan) return plan.take_status();
    WeftChoice choice{plan->algorithm, {}, {}};
    if (plan->steps >= 0)
        for (const StepAlgorithm& one : layout.steps)
            if (one.algorithm->collective == operation.collective)
                choice.predicted_us[one.algorithm] = one.predicted_us(operation.whole_bytes(layout.ranks));
    const bool one_shot = plan->body == cuda::Body::packet_one_shot || plan->body == cuda::Body::peer_one_shot;
    if (plan->steps < 0) choice.algorithm = one_shot ? "one_shot" : "two_shot";
    for (const Algorithm* row : scene.rows) {
        DeviceLayout alone = layout;
        alone.rules =
            AlgoRules(fmt::format("{}:{}", name_of(row->collective), row->name), scene.layout, registry::algorithms());
        if (!plan_on_device(operation, alone)) choice.unable.push_back(row);
    }
    return choice;
}

}  // namespace

Result<WeftChoice> weft_choice(const SimulateRequest& request, const Scene& scene) {
    Operation operation;
    operation.collective = scene.rows[0]->collective;
    operation.type = operation.collective == Collective::barrier ? weftInt8 : weftFloat32;
    operation.op = weftSum;
    operation.root = std::max(0, scene.parameters.root);
    operation.count = request.bytes / size_of(weftDataType_t(operation.type)) /
                      uint64_t(parts_of(operation.collective, scene.layout.ranks));
    const auto link_mbps = int64_t(std::min(8 * scene.net_bytes_per_us, 1e15));
    if (scene.kind.devices) return choice_on_devices(operation, scene, link_mbps);
    // As in the simulation, each rank has a core and stages the data that it sends.
    LinkCosts costs = scene.layout.host_count() == 1 ? host_link_costs(scene.layout.ranks, scene.layout.ranks, false)
                                                     : network_link_costs(1, link_mbps, false);
    if (scene.network && scene.layout.host_count() > 1)
        costs = over_network(std::move(costs), *scene.network, scene.link_mbps);
    costs.net_links = scene.net_links;
    auto choice = select(operation, scene.layout, costs, {}, registry::algorithms());
    if (!choice) return choice.take_status();
    WeftChoice weft{choice->algorithm->name, {}, {}};
    for (const Candidate& one : candidates(operation, scene.layout, costs, {}, registry::algorithms()))
        if (one.excluded.empty()) weft.predicted_us[one.algorithm] = one.predicted.us;
    return weft;
}

}  // namespace weft::internal::tools
