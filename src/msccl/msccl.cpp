#include "src/msccl/msccl.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "src/checker/checker.hpp"
#include "src/msccl/msccl_emit.hpp"
#include "src/msccl/msccl_flow.hpp"
#include "src/schedule/text.hpp"
#include "src/schedule/validate.hpp"

namespace weft::internal {

namespace msccl {

namespace {

struct Named {
    const char* name;
    Collective collective;
};
constexpr Named collectives[] = {{"allreduce", Collective::all_reduce},
                                 {"allgather", Collective::all_gather},
                                 {"reduce_scatter", Collective::reduce_scatter},
                                 {"reducescatter", Collective::reduce_scatter},
                                 {"alltoall", Collective::all_to_all},
                                 {"broadcast", Collective::broadcast},
                                 {"reduce", Collective::reduce},
                                 {"gather", Collective::gather},
                                 {"scatter", Collective::scatter}};

// The only gpu that receives (or sends) no message. A file need not name its root.
std::optional<int> sole_end(const File& file, bool (*uses)(Opcode)) {
    std::optional<int> root;
    for (const XmlGpu& gpu : file.gpus) {
        bool used = false;
        for (const ThreadBlock& block : gpu.blocks)
            for (const Step& step : block.steps) used |= uses(step.opcode);
        if (used) continue;
        if (root) return {};
        root = gpu.id;
    }
    return root;
}

Status find_shape(const File& file, Shape& shape) {
    // Files of the first versions name no collective, because there was one.
    const std::string_view name = file.collective.empty() ? std::string_view("allreduce") : file.collective;
    const auto row =
        std::find_if(std::begin(collectives), std::end(collectives), [&](const Named& it) { return name == it.name; });
    if (row == std::end(collectives)) {
        std::string list;
        for (const Named& it : collectives) list += fmt::format("{}{}", list.empty() ? "" : ", ", it.name);
        return fail_at(file.mark, "coll is {}; there are {}", xml::shown(name), list);
    }
    shape = {row->collective, file.ranks, file.chunks, -1};
    const CollectiveFacts facts = facts_of(shape.collective);
    if (shape.chunks % shape.parts() != 0)
        return fail_at(file.mark, "nchunksperloop is {}; {} on {} gpus takes a multiple of {}", shape.chunks, name,
                       shape.ranks, shape.ranks);
    if (!facts.rooted) return ok();
    const bool gives = facts.output_of_others != Held::nothing;  // whether the root sends
    const auto root = file.root >= 0 ? std::optional<int>(file.root) : sole_end(file, gives ? receives : sends);
    if (!root)
        return fail_at(file.mark, "{} has a root, and no or several gpus {} nothing: name it, as in root=\"0\"", name,
                       gives ? "receive" : "send");
    shape.root = *root;
    return ok();
}

// The name of a step in messages: the file's, or the schedule's numbers for a step that Weft added.
std::string name_of_step(const std::vector<SourceSteps>& origins, int rank, int block, int step) {
    const auto& steps = origins[size_t(rank)];
    if (block < 0 || size_t(block) >= steps.size() || step < 0 || size_t(step) >= steps[size_t(block)].size())
        return fmt::format("gpu {}", rank);
    const SourceStep& origin = steps[size_t(block)][size_t(step)];
    if (origin.block < 0) return fmt::format("gpu {}, step {} of block {}, which Weft adds", rank, step, block);
    return fmt::format("line {}: gpu {}, tb {}, step {}", origin.line, rank, origin.block, origin.step);
}

struct Translated {
    std::vector<Schedule> schedules;
    std::vector<SourceSteps> origins;
};

Result<Translated> translate(const File& file, const Shape& shape, const FollowOptions& options) {
    auto flow = follow(file, shape, options);
    if (!flow) return flow.take_status();
    Translated all;
    for (Emitted& rank : emit(file, shape, *flow)) {
        all.schedules.push_back(std::move(rank.schedule));
        all.origins.push_back(std::move(rank.origins));
    }
    for (const Schedule& schedule : all.schedules)
        if (const auto found = find_objection(schedule))
            return fail_at(file.gpus[size_t(schedule.rank)].mark, "{}: {}",
                           name_of_step(all.origins, schedule.rank, found->block, found->step), found->sentence);
    return all;
}

// Proves one tile, out of place or in place. A user can run check_set, which does more.
bool proved(const std::vector<Schedule>& schedules, bool in_place, const CheckOptions& options) {
    CheckedOperation operation;
    operation.schedule = [&](int rank) { return schedules[size_t(rank)]; };
    operation.in_place.assign(schedules.size(), in_place);
    return check(int(schedules.size()), {&operation, 1}, options).ok();
}

// Schedules for both in place and out of place, where that is possible.
Result<Translated> translate_for_both(const File& file, const Shape& shape, bool sort, const CheckOptions& options) {
    auto all = translate(file, shape, {.sort = sort});
    if (!all || file.in_place || facts_of(shape.collective).transposes) return all;
    if (proved(all->schedules, false, options) && !proved(all->schedules, true, options)) {
        // In place, the program reads its input after the output was written there.
        auto saving = translate(file, shape, {.save = true, .sort = sort});
        if (saving && proved(saving->schedules, true, options)) return saving;
    }
    return all;
}

Result<MscclProgram> read(const File& file, bool any_order) {
    Shape shape;
    WEFT_TRY(find_shape(file, shape));
    CheckOptions options{.any_order = any_order};
    auto all = translate_for_both(file, shape, false, options);
    if (!all) return all.take_status();
    bool right = proved(all->schedules, false, options);
    if (!right && facts_of(shape.collective).reduces && proved(all->schedules, false, {.any_order = true})) {
        auto sorted = translate_for_both(file, shape, true, options);
        if (sorted && proved(sorted->schedules, false, options)) {
            all = std::move(sorted);
            right = true;
        }
    }
    if (right) {
        const int most = all->schedules[0].fifo_depth;
        int depth = std::min(fifo_depth_least, most);
        for (; depth < most; depth = std::min(most, 2 * depth)) {
            options.fifo_depth = depth;
            if (proved(all->schedules, false, options)) break;
        }
        for (Schedule& schedule : all->schedules) schedule.fifo_depth = depth;
    }
    MscclProgram program;
    program.name = algorithm_name(file);
    program.collective = shape.collective;
    program.root = shape.root;
    program.min_bytes = size_t(file.min_bytes);
    program.max_bytes = size_t(file.max_bytes);
    program.schedules = std::move(all->schedules);
    program.step_name = [origins = std::make_shared<const std::vector<SourceSteps>>(std::move(all->origins))](
                            int rank, int block, int step) { return name_of_step(*origins, rank, block, step); };
    return program;
}

}  // namespace

}  // namespace msccl

Result<MscclProgram> read_msccl(std::string_view xml, bool any_order) {
    const auto file = msccl::parse(xml);
    if (!file) return {file.status().copy()};
    const std::string assumed =
        file->collective.empty()
            ? fmt::format("line {}: <algo> has no coll: it was read as an allreduce", file->mark.line)
            : std::string();
    auto program = msccl::read(*file, any_order);
    if (program)
        program->assumed = assumed;
    else if (!assumed.empty())
        return fail(program.status(), "{}; {}", program.status().sentence(), assumed);
    return program;
}

Status ScheduleFile::check(std::span<const Schedule> set, const DirectMode& mode, CheckOptions options,
                           Proved* proved) const {
    options.step_name = step_name;
    Status status = check_set(set, mode, options, proved);
    return status || assumed.empty() ? std::move(status) : fail(status, "{}; {}", status.sentence(), assumed);
}

std::vector<std::vector<Schedule>> ScheduleFile::take_sets() {
    std::map<std::tuple<std::string, Collective, int, int, int64_t, int64_t>, std::vector<Schedule>> by_key;
    for (Schedule& schedule : schedules)
        by_key[{schedule.algorithm, schedule.collective, schedule.ranks, schedule.root, schedule.least_bytes,
                schedule.most_bytes}]
            .push_back(std::move(schedule));
    schedules.clear();
    std::vector<std::vector<Schedule>> sets;
    for (auto& [key, set] : by_key) sets.push_back(std::move(set));
    return sets;
}

Result<ScheduleFile> read_schedules(std::string_view text, bool any_order) {
    ScheduleFile file;
    const size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    if (first == text.npos || text[first] != '<') {
        auto schedules = read_texts(text);
        if (!schedules) return schedules.take_status();
        file.schedules = std::move(*schedules);
        return file;
    }
    auto program = read_msccl(text, any_order);
    if (!program) return program.take_status();
    for (Schedule& schedule : program->schedules) {
        schedule.least_bytes = int64_t(std::min<uint64_t>(program->min_bytes, INT64_MAX));
        schedule.most_bytes = int64_t(std::min<uint64_t>(program->max_bytes, INT64_MAX));
    }
    file.schedules = std::move(program->schedules);
    file.step_name = std::move(program->step_name);
    file.assumed = std::move(program->assumed);
    return file;
}

}  // namespace weft::internal
