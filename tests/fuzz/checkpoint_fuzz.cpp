// checkpoint_fuzz.cpp: any bytes as checkpoint.json end in an error or in a checkpoint. It is the same when written and
// read again, and each of its tensors can be read as a whole, from places inside the data files.
//
//     build/tests/fuzz/checkpoint_fuzz -dict=tests/fuzz/checkpoint.dict corpus tests/fuzz/checkpoints
#include <cstdint>
#include <cstdlib>
#include <string>

#include "src/train/checkpoint/plan.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    using namespace weft::internal::train;
    std::string text(reinterpret_cast<const char*>(data), bytes);
    // The seeds have no checksum, which changes would never hit.
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (!text.empty() && text.back() == '}') text = sealed(text);
    OpenedCheckpoint opened{"folder", {}, {}};
    const auto read = opened.read(text);
    if (!read) {
        if (read.sentence().empty()) std::abort();
        return 0;
    }
    const std::string written = to_json(opened.metadata);
    const auto again = metadata_of(written, "again");
    if (!again || to_json(*again) != written) std::abort();
    for (const auto& [name, boxes] : opened.index.tensors()) {
        StoredBox wanted = *boxes.front();
        wanted.box = {std::vector<size_t>(wanted.shape.size()), wanted.shape};
        const auto plan = plan_reads(opened.index, wanted, opened.folder);
        if (!plan) std::abort();
        for (const Read& each : *plan) {
            const StoredBox& stored = *each.stored;
            if (stored.begin + stored.bytes() > opened.metadata.file_bytes.at(size_t(stored.rank))) std::abort();
            if (stored.checksums.size() * checksum_block_bytes < stored.bytes()) std::abort();
        }
    }
    return 0;
}
