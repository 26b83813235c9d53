#include "src/schedule/msccl_order.hpp"

namespace weft::msccl {

// About a gigabyte.
static constexpr uint64_t clock_words_most = uint64_t(1) << 28;

Status Order::load(const File& file) {
    for (const Gpu& gpu : file.gpus) blocks_ = std::max(blocks_, int(gpu.blocks.size()));
    uint64_t words = file.gpus.size() * uint64_t(blocks_) * uint64_t(blocks_);
    if (words > clock_words_most) return fail_at(file.mark, "{} tbs on {} gpus are too many", blocks_, file.ranks);
    releases_.resize(file.gpus.size() * size_t(blocks_));
    for (const Gpu& gpu : file.gpus)
        for (const ThreadBlock& block : gpu.blocks) {
            if (block.steps.size() >= steps_most)
                return fail_at(block.mark, "tb {} of gpu {} has too many steps", block.id, gpu.id);
            for (const Step& step : block.steps) {
                if (step.after_block < 0) continue;
                auto& releases = releases_[size_t(clock_of({gpu.id, step.after_block, 0}))];
                if (releases.try_emplace(step.after_step).second) words += uint64_t(blocks_);
                if (words > clock_words_most) return fail_at(step.mark, "there are too many dependencies");
            }
        }
    clocks_.emplace(std::vector<int>(file.gpus.size()), 1, blocks_);
    return ok();
}

void Order::acquire(const StepPlace& here, const Step& step) {
    const auto& releases = releases_[size_t(clock_of({here.rank, step.after_block, 0}))];
    clocks_->merge(clocks_->row(clock_of(here)), releases.at(step.after_step).data());
}

void Order::release(const StepPlace& here) {
    auto& releases = releases_[size_t(clock_of(here))];
    const auto found = releases.find(here.step);
    if (found == releases.end()) return;
    const uint32_t* row = clocks_->row(clock_of(here));
    found->second.assign(row, row + clocks_->width());
    clocks_->tick(clock_of(here));
}

std::optional<Order::Conflict> Order::read(const StepPlace& here, Cell& place) {
    if (!clocks_->ordered(place.write, clock_of(here))) return Conflict{place_of(place.write), "written"};
    reads_.add(place, access(here));
    return {};
}

std::optional<Order::Conflict> Order::write(const StepPlace& here, Cell& place) {
    if (!clocks_->ordered(place.write, clock_of(here))) return Conflict{place_of(place.write), "written"};
    std::optional<Conflict> conflict;
    reads_.each(place, [&](const ChunkAccess& read) {
        if (!clocks_->ordered(read, clock_of(here))) conflict = {place_of(read), "read"};
        return !conflict;
    });
    reads_.clear(place);
    place.write = access(here);
    return conflict;
}

}  // namespace weft::msccl
