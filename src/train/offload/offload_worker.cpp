#include "src/train/offload/offload_worker.hpp"

#include <algorithm>

#include "src/base/datatype.hpp"

namespace weft::internal::train {

namespace {

// The elements of a part from `first` on.
void* behind(void* memory, weftDataType_t type, size_t first) {
    return memory ? static_cast<std::byte*>(memory) + first * size_of(type) : nullptr;
}

}  // namespace

OffloadWorker::Selection OffloadWorker::select(std::span<const PartTask> tasks) const {
    Selection selection{std::vector<bool>(parts_.size(), false), std::vector<size_t>(parts_.size(), 0)};
    for (size_t i = 0; i < tasks.size(); ++i) {
        const auto part = size_t(tasks[i].part - parts_.data());
        selection.used[part] = true;
        selection.task[part] = i;
    }
    return selection;
}

ModelPart OffloadWorker::part_of(const LoadedPiece& piece) const {
    const ModelPart& whole = parts_[piece.part];
    ModelPart part;
    part.values = has_values_ ? piece.arrays[moments_] : whole.values + piece.first;
    part.copy = behind(whole.copy, whole.copy_type, piece.first);
    part.copy_type = whole.copy_type;
    part.gradient = behind(whole.gradient, whole.gradient_type, piece.first);
    part.gradient_type = whole.gradient_type;
    part.count = piece.count;
    return part;
}

PartTask OffloadWorker::task_of(const PartTask& whole, const LoadedPiece& piece, const ModelPart& part) const {
    PartTask task = whole;
    task.part = &part;
    if (moments_ > 0) task.first = piece.arrays[0];
    if (moments_ > 1) task.second = piece.arrays[1];
    return task;
}

Status OffloadWorker::run(PartWork work, std::span<const PartTask> tasks, weftStream_t stream) {
    const Selection selection = select(tasks);
    return states_->pass(selection.used, true, [&](std::span<const LoadedPiece> pieces) {
        std::vector<ModelPart> parts;
        for (const LoadedPiece& piece : pieces) parts.push_back(part_of(piece));
        std::vector<PartTask> loaded;
        for (size_t i = 0; i < pieces.size(); ++i)
            loaded.push_back(task_of(tasks[selection.task[pieces[i].part]], pieces[i], parts[i]));
        return host_->run(work, loaded, stream);
    });
}

// Block by block, so that a part's sums are added up in the order of the host's worker.
Result<std::vector<PartSums>> OffloadWorker::sums(PartWork work, std::span<const PartTask> tasks, double power,
                                                  weftStream_t stream) {
    // The norms of LARS are of values and gradients.
    if (work != PartWork::lamb_norms && !has_values_) return host_->sums(work, tasks, power, stream);
    const Selection selection = select(tasks);
    std::vector<PartSums> all(tasks.size(), PartSums{0, 0, 0});
    const auto add = [&](const LoadedPiece& piece) -> Status {
        const size_t number = selection.task[piece.part];
        std::vector<ModelPart> parts;
        std::vector<PartTask> blocks;
        for_each_block(piece.count, [&](size_t first, size_t count) {
            LoadedPiece block{piece.part, piece.first + first, count, {}};
            for (int i = 0; i < 3; ++i) block.arrays[i] = piece.arrays[i] ? piece.arrays[i] + first : nullptr;
            parts.push_back(part_of(block));
            blocks.push_back(task_of(tasks[number], block, parts.back()));
        });
        for (size_t i = 0; i < blocks.size(); ++i) blocks[i].part = &parts[i];  // they have moved
        auto sums = host_->sums(work, blocks, power, stream);
        if (!sums) return sums.take_status();
        for (const PartSums& sum : *sums) {
            all[number].first += sum.first;
            all[number].second += sum.second;
        }
        return ok();
    };
    WEFT_TRY(states_->pass(selection.used, false, [&](std::span<const LoadedPiece> pieces) -> Status {
        for (const LoadedPiece& piece : pieces) WEFT_TRY(add(piece));
        return ok();
    }));
    return all;
}

Status OffloadWorker::copy(size_t part, bool writes, const OffloadedStates::Body& body) {
    std::vector<bool> used(parts_.size(), false);
    used[part] = true;
    return states_->pass(used, writes, body);
}

Status OffloadWorker::read(size_t part, int array, float* to) {
    return copy(part, false, [&](std::span<const LoadedPiece> pieces) {
        for (const LoadedPiece& piece : pieces) std::copy_n(piece.arrays[array], piece.count, to + piece.first);
        return ok();
    });
}

Status OffloadWorker::write_values() {
    return states_->pass(std::vector<bool>(parts_.size(), true), true, [&](std::span<const LoadedPiece> pieces) {
        for (const LoadedPiece& piece : pieces)
            std::copy_n(parts_[piece.part].values + piece.first, piece.count, piece.arrays[moments_]);
        return ok();
    });
}

Status OffloadWorker::write(size_t part, int array, const float* from) {
    return copy(part, true, [&](std::span<const LoadedPiece> pieces) {
        for (const LoadedPiece& piece : pieces) std::copy_n(from + piece.first, piece.count, piece.arrays[array]);
        return ok();
    });
}

}  // namespace weft::internal::train
