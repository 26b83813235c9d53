#include "src/train/checkpoint/export.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/datatype.hpp"
#include "src/train/checkpoint/data.hpp"
#include "src/train/checkpoint/durable_file.hpp"
#include "src/train/checkpoint/save_id.hpp"
#include "src/train/checkpoint/verdict.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// A rank's share of the work: a slab is contiguous in the file.
constexpr size_t slab_bytes = size_t(16) << 20;

// Whole tensors with their names in the checkpoint, in the order of the file.
std::vector<StoredBox> tensors_with(const TensorIndex& index, const std::string& prefix) {
    std::vector<StoredBox> tensors;
    for (const auto& [name, boxes] : index.tensors()) {
        if (is_item_name(name) || !name.starts_with(prefix) || name.size() == prefix.size()) continue;
        StoredBox whole = *boxes.front();
        whole.box = {std::vector<size_t>(whole.shape.size()), whole.shape};
        whole.checksums.clear();
        tensors.push_back(std::move(whole));
    }
    // Larger elements first, so that all are aligned.
    std::stable_sort(tensors.begin(), tensors.end(), [](const StoredBox& left, const StoredBox& right) {
        return size_of(left.type) > size_of(right.type);
    });
    return tensors;
}

// Parts of a tensor of about slab_bytes: whole rows of the first dimension.
std::vector<Box> slabs_of(const StoredBox& tensor) {
    if (tensor.bytes() == 0) return {};
    if (tensor.shape.empty()) return {tensor.box};
    const size_t all = tensor.shape[0], rows = std::max<size_t>(1, slab_bytes / (tensor.bytes() / all));
    std::vector<Box> slabs;
    for (size_t begin = 0; begin < all; begin += rows) {
        Box slab = tensor.box;
        slab.offsets[0] = begin;
        slab.extents[0] = std::min(rows, all - begin);
        slabs.push_back(std::move(slab));
    }
    return slabs;
}

Status copy_slab(const OpenedCheckpoint& opened, DataReader& reader, const StoredBox& tensor, Box slab,
                 DurableFile& file) {
    StoredBox wanted = tensor;
    wanted.box = std::move(slab);
    const auto reads = plan_reads(opened.index, wanted, opened.folder);
    if (!reads) return reads.status().copy();
    std::vector<std::byte> memory(wanted.bytes());
    for (const Read& read : *reads) WEFT_TRY(reader.read(read, wanted.box, memory.data()));
    const size_t row = wanted.shape.empty() ? 0 : wanted.box.offsets[0] * (tensor.bytes() / tensor.shape[0]);
    return file.write_at(tensor.begin + row, memory.data(), memory.size());
}

// Every ranks-th slab of all tensors.
Status copy_share(const Peers& peers, const OpenedCheckpoint& opened, const std::vector<StoredBox>& tensors,
                  const std::string& name) {
    auto file = DurableFile::open(name);
    if (!file) return file.take_status();
    DataReader reader(opened.folder, opened.metadata);
    size_t number = 0;
    for (const StoredBox& tensor : tensors)
        for (Box& slab : slabs_of(tensor))
            if (number++ % size_t(peers.ranks()) == size_t(peers.rank()))
                WEFT_TRY(copy_slab(opened, reader, tensor, std::move(slab), *file));
    return file->sync();
}

Status create(const std::string& name, const std::string& header, uint64_t bytes) {
    auto file = DurableFile::create(name);
    if (!file) return file.take_status();
    WEFT_TRY(file->resize(bytes));
    return file->write_at(0, header.data(), header.size());
}

}  // namespace

Status export_tensors(const Peers& peers, const OpenedCheckpoint& opened, const std::string& prefix,
                      const std::string& file) {
    std::vector<StoredBox> tensors = tensors_with(opened.index, prefix);
    if (tensors.empty())
        return fail(error::train_checkpoint_model, "the checkpoint {} has no tensor whose name begins with \"{}\"",
                    opened.folder, prefix);
    std::vector<StoredBox> renamed = tensors;
    for (StoredBox& tensor : renamed) tensor.tensor.erase(0, prefix.size());
    const std::string header = safetensors_header(renamed, "");
    uint64_t end = header.size();
    for (StoredBox& tensor : tensors) {
        tensor.begin = end;
        end += tensor.bytes();
    }
    const bool first = peers.rank() == 0;
    const auto id = broadcast_text(peers, first ? new_save_id() : "");
    if (!id) return id.status().copy();
    const std::string draft = draft_of(file, *id);
    const auto step = [&](Status own) {
        Status verdict = common_verdict(peers, std::move(own));
        if (!verdict && first) (void)unlink(draft.c_str());
        return verdict;
    };
    WEFT_TRY(step(first ? create(draft, header, end) : ok()));
    WEFT_TRY(step(copy_share(peers, opened, tensors, draft)));
    return step(first ? rename_durably(draft, file) : ok());
}

}  // namespace weft::internal::train
