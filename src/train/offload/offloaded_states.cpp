#include "src/train/offload/offloaded_states.hpp"

#include <algorithm>
#include <cstdlib>

#include "src/base/log.hpp"

namespace weft::internal::train {

namespace {

Result<std::unique_ptr<TransferEngine>> engine_wanted(OffloadRule::Engine wanted, int slots) {
    if (wanted == OffloadRule::Engine::threads) return thread_engine(slots);
    auto ring = ring_engine(slots);
    if (ring || wanted == OffloadRule::Engine::ring) return ring;
    WEFT_LOG(info, init, "offload of an optimizer reads and writes by threads: {}", ring.status().sentence());
    return thread_engine(slots);
}

}  // namespace

void OffloadedStates::FreedMemory::operator()(std::byte* memory) const { std::free(memory); }

OffloadedStates::OffloadedStates(OffloadLayout layout, size_t part_count, int arrays)
    : layout_(std::move(layout)),
      part_count_(part_count),
      arrays_(arrays),
      chunk_bytes_(size_t(arrays) * layout_.chunk_elements() * sizeof(float)) {}

Result<std::unique_ptr<OffloadedStates>> OffloadedStates::make(const OffloadRule& rule, std::span<const size_t> counts,
                                                               int arrays) {
    const size_t elements = rule.chunk_elements ? rule.chunk_elements : OffloadRule::chunk_default;
    std::unique_ptr<OffloadedStates> made(new OffloadedStates(OffloadLayout(counts, elements), counts.size(), arrays));
    const uint64_t bytes = made->layout_.chunk_count() * made->chunk_bytes_;
    auto file = StateFile::create(rule.folder, bytes);
    if (!file) return file.take_status();
    made->file_ = std::move(*file);
    WEFT_TRY(made->allocate(rule.buffers));
    auto engine = engine_wanted(rule.engine, int(made->buffers_.size()));
    if (!engine) return engine.take_status();
    made->engine_ = std::move(*engine);
    WEFT_LOG(info, init, "states of an optimizer, {} bytes, lie in a file in {}: {}, {} buffers of {} bytes, {}", bytes,
             rule.folder, made->engine(), made->buffers_.size(), made->chunk_bytes_,
             made->file_.direct() ? "O_DIRECT" : "page cache, because the file system refuses O_DIRECT");
    return made;
}

Status OffloadedStates::allocate(int buffers) {
    // A model of few chunks needs no more.
    const size_t most = std::max<size_t>(layout_.chunk_count(), 1);
    for (size_t i = 0; i < std::min(size_t(buffers), most); ++i) {
        void* const memory = std::aligned_alloc(transfer_alignment, chunk_bytes_);
        if (!memory)
            return fail(error::memory_exhausted, "no memory for {} buffers of {} bytes", buffers, chunk_bytes_);
        buffers_.emplace_back().memory.reset(static_cast<std::byte*>(memory));
    }
    return ok();
}

Status OffloadedStates::pass(const std::vector<bool>& used, bool writes, const Body& body) {
    std::vector<size_t> chunks;
    for (size_t chunk = 0; chunk < layout_.chunk_count(); ++chunk)
        if (std::ranges::any_of(layout_.chunk(chunk), [&](const ChunkPiece& piece) { return used[piece.part]; }))
            chunks.push_back(chunk);
    // Also after an error or an exception: transfers use the buffers.
    struct Drained {
        OffloadedStates& states;
        ~Drained() {
            for (int buffer = 0; buffer < int(states.buffers_.size()); ++buffer) (void)states.wait(buffer);
        }
    } const drained{*this};
    WEFT_TRY(run(chunks, used, writes, body));
    for (int buffer = 0; buffer < int(buffers_.size()); ++buffer) WEFT_TRY(wait(buffer));
    return ok();
}

// While chunk i is computed, chunk i - 1 is written, and those behind i are read.
Status OffloadedStates::run(std::span<const size_t> chunks, const std::vector<bool>& used, bool writes,
                            const Body& body) {
    const size_t count = buffers_.size();
    // One buffer is left for the write, if there is any.
    const size_t ahead = count > 2 && writes ? count - 2 : count - 1;
    size_t next_read = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
        for (; next_read < chunks.size() && next_read <= i + ahead; ++next_read) {
            const int buffer = int(next_read % count);
            WEFT_TRY(wait(buffer));  // for its write
            WEFT_TRY(begin(buffer, false, chunks[next_read]));
        }
        const int buffer = int(i % count);
        WEFT_TRY(wait(buffer));
        WEFT_TRY(body(pieces_of(chunks[i], used, buffers_[size_t(buffer)].memory.get())));
        if (writes) WEFT_TRY(begin(buffer, true, chunks[i]));
    }
    return ok();
}

Status OffloadedStates::begin(int buffer, bool writes, size_t chunk) {
    Buffer& own = buffers_[size_t(buffer)];
    own.transfer = {file_.number(), writes, own.memory.get(), chunk_bytes_, chunk * chunk_bytes_};
    WEFT_TRY(engine_->begin(buffer, own.transfer));
    own.busy = true;
    return ok();
}

Status OffloadedStates::wait(int buffer) {
    Buffer& own = buffers_[size_t(buffer)];
    while (own.busy) {
        own.busy = false;
        auto moved = engine_->wait(buffer);
        if (!moved) return moved.take_status();
        if (*moved <= 0) return file_.failure(own.transfer.writes, *moved);
        if (size_t(*moved) == own.transfer.bytes) return ok();
        // The kernel may move fewer bytes than asked for.
        Transfer rest = own.transfer;
        rest.memory += *moved;
        rest.bytes -= size_t(*moved);
        rest.place += uint64_t(*moved);
        own.transfer = rest;
        WEFT_TRY(engine_->begin(buffer, rest));
        own.busy = true;
    }
    return ok();
}

std::vector<LoadedPiece> OffloadedStates::pieces_of(size_t chunk, const std::vector<bool>& used,
                                                    std::byte* memory) const {
    std::vector<LoadedPiece> pieces;
    for (const ChunkPiece& piece : layout_.chunk(chunk)) {
        if (!used[piece.part]) continue;
        LoadedPiece& loaded = pieces.emplace_back(LoadedPiece{piece.part, piece.first, piece.count, {}});
        for (int array = 0; array < arrays_; ++array)
            loaded.arrays[array] =
                reinterpret_cast<float*>(memory) + size_t(array) * layout_.chunk_elements() + piece.place;
    }
    return pieces;
}

}  // namespace weft::internal::train
