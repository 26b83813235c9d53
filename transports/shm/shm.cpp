// shm.cpp: connections between ranks of one host: a ring of headers and a ring of data in the receiver's heap of the
// segment. The sender owns a header and a slot from the credit to the publication, the receiver until the release.
// A header's `published` is the publication (release, pairs with the acquire in receive()). The counts of released
// messages and slots, in a cache line of their own, are the credit (release, pair with the acquire in has_credit()).
// In a data ring each slot begins where the previous slot's data end. Both ends compute that from the sizes in the
// headers. So the data rotate through the whole ring with any message size. The sender then rarely writes a line that
// the receiver's second-level cache still holds, which takes several times as long.
#include "transports/shm/shm.hpp"

#include <tuple>

#include "src/base/small_copy.hpp"
#include "src/segment/shm_layout.hpp"

namespace weft::internal {

namespace {

struct alignas(line_bytes) Credits {
    std::atomic<uint64_t> released;  // messages that the receiver has released
    std::atomic<uint64_t> slots;     // of these, the messages that took a slot
};

// With many slots a sender may be far ahead. Messages that fit in headers then have this many times the headers, so that
// a sender that shares a core with its receiver waits less often.
constexpr unsigned many_slots = 16, headers_a_slot = 4;
std::byte* heap_of(Segment& host, int rank) { return host.heaps().at(host.place(rank)); }
// Connections that begin behind this offset of a rank's heap get fixed slots, which are smaller than a ring, so that many
// fit.
size_t rings_end(Segment& host) { return host.heaps().connections_end() / 4; }

// The layout in the receiver's heap: Credits, the headers, then the data of `depth` slots, either as a ring or as fixed
// slots. A message that fits in a header takes no slot.
class RingLayout {
  public:
    // `ring_bytes`: 0, or at least least_ring_bytes().
    RingLayout(std::byte* base, int depth, size_t slot_bytes, size_t ring_bytes)
        : base_(base),
          depth_(unsigned(depth)),
          cells_(cells_of(depth_)),
          slot_bytes_(slot_bytes),
          end_(ring_bytes > 0 ? round_to_line(ring_bytes) : round_to_line(slot_bytes) * depth_),
          step_(ring_bytes > 0 ? 0 : round_to_line(slot_bytes)) {}

    static size_t bytes_of(int depth, size_t slot_bytes, size_t ring_bytes) {
        return sizeof(Credits) + headers_bytes(cells_of(unsigned(depth))) +
               (ring_bytes > 0 ? round_to_line(ring_bytes) : round_to_line(slot_bytes) * size_t(depth));
    }
    // All slots' data, and the remainder before the wrap that is too small for one more slot.
    static size_t least_ring_bytes(int depth, size_t slot_bytes) {
        return round_to_line(slot_bytes) * size_t(depth + 1);
    }
    static bool is_inline(size_t bytes) { return bytes <= sizeof SlotHeader::inline_data; }
    // The bytes of a message that lie in the data ring.
    static size_t in_data(const SlotInfo& info) { return info.address != 0 || is_inline(info.bytes) ? 0 : info.bytes; }
    unsigned depth() const { return depth_; }
    unsigned cells() const { return cells_; }
    size_t slot_bytes() const { return slot_bytes_; }
    Credits& credits() const { return *reinterpret_cast<Credits*>(base_); }
    SlotHeader& header(unsigned cell) const { return reinterpret_cast<SlotHeader*>(base_ + sizeof(Credits))[cell]; }
    unsigned after(unsigned cell) const { return cell + 1 == cells_ ? 0 : cell + 1; }
    std::byte* data(size_t begin) const { return base_ + sizeof(Credits) + headers_bytes(cells_) + begin; }
    // Where the data of the next message begin; `in_data` is the size of this message in the ring.
    size_t next(size_t begin, size_t in_data) const {
        if (in_data == 0) return begin;
        const size_t end = begin + (step_ > 0 ? step_ : round_to_line(in_data));
        return end + round_to_line(slot_bytes_) <= end_ ? end : 0;
    }

  private:
    static unsigned cells_of(unsigned depth) { return depth < many_slots ? depth : depth * headers_a_slot; }
    static size_t headers_bytes(unsigned cells) { return round_to_line(sizeof(SlotHeader) * cells); }
    std::byte* base_;
    unsigned depth_;  // slots
    unsigned cells_;  // headers
    size_t slot_bytes_;
    size_t end_;   // of the data
    size_t step_;  // from one fixed slot to the next; 0: a ring
};

class ShmSender final : public Sender {
  public:
    ShmSender(const ConnectionOptions& options, RingLayout place) : options_(options), ring_(place) {}

    Result<Slot> acquire() override {
        auto credit = has_credit(true);
        if (!credit) return credit.take_status();
        return *credit ? Slot{ring_.data(begin_), ring_.slot_bytes()} : Slot{};
    }

    Status publish(const SlotInfo& info) override {
        SlotHeader& header = ring_.header(cell_);
        uint8_t where = uint8_t(info.bytes);
        if (info.address == 0 && RingLayout::is_inline(info.bytes)) {
            memcpy(header.inline_data, ring_.data(begin_), sizeof header.inline_data);
        } else {
            header.longer = {info.bytes, info.address};
            where = info.address != 0 ? SlotHeader::zero_copy : SlotHeader::among_data;
        }
        publish(header, where, info);
        return ok();
    }

    Result<bool> send(const std::byte* data, const SlotInfo& info) override {
        if (!RingLayout::is_inline(info.bytes)) return Sender::send(data, info);
        auto credit = has_credit(false);
        if (!credit || !*credit) return credit;
        SlotHeader& header = ring_.header(cell_);
        copy_small<sizeof header.inline_data>(header.inline_data, data, info.bytes);
        publish(header, uint8_t(info.bytes), info);
        return true;
    }

    bool zero_copy_done() override {
        return released_ >= zero_copy_slot_ ||
               ring_.credits().released.load(std::memory_order_acquire) >= zero_copy_slot_;  // pairs with release()
    }

  private:
    // For a header, and for a slot if the message has data in the ring.
    Result<bool> has_credit(bool data) {
        if (has_room(data)) [[likely]]
            return true;
        released_ = ring_.credits().released.load(std::memory_order_acquire);  // both pair with release()
        slots_released_ = ring_.credits().slots.load(std::memory_order_acquire);
        if (published_ - released_ > ring_.cells() || slots_taken_ - slots_released_ > ring_.depth())
            return fail(error::internal_damaged,
                        "rank {} got {} of {} messages and {} of {} slots back from rank {}: the segment is damaged",
                        options_.self, released_, published_, slots_released_, slots_taken_, options_.peer)
                .about({.rank = options_.peer, .peer = options_.self});
        return has_room(data);
    }
    bool has_room(bool data) const {
        return published_ - released_ < ring_.cells() && (!data || slots_taken_ - slots_released_ < ring_.depth());
    }

    // The caller has filled the rest of the header.
    void publish(SlotHeader& header, uint8_t where, const SlotInfo& info) {
        header.told = info.operation << 8 | where;
        const size_t in_data = RingLayout::in_data(info);
        slots_taken_ += in_data > 0;
        begin_ = ring_.next(begin_, in_data);
        cell_ = ring_.after(cell_);
        header.published.store(++published_ << 32 | info.fingerprint,
                               std::memory_order_release);  // pairs with receive()
        if (info.address != 0) zero_copy_slot_ = published_;
        options_.host->wake();
    }

    ConnectionOptions options_;
    RingLayout ring_;
    size_t begin_ = 0;   // of the next message's data
    unsigned cell_ = 0;  // of the next message's header
    uint64_t published_ = 0;
    uint64_t slots_taken_ = 0;
    uint64_t released_ = 0, slots_released_ = 0;  // as last read
    uint64_t zero_copy_slot_ = 0;                 // the last slot that holds an address
};

class ShmReceiver final : public Receiver {
  public:
    ShmReceiver(const ConnectionOptions& options, RingLayout place) : options_(options), ring_(place) {}

    Result<Slot> receive(SlotInfo& info) override {
        SlotHeader& header = ring_.header(cell_);
        const uint64_t published = header.published.load(std::memory_order_acquire);  // pairs with publish()
        const uint32_t number = uint32_t(published >> 32), expected = uint32_t(released_ + 1);
        if (number != expected) {
            // An unused cell is zero or holds the message of one round ago; anything else is damage.
            if (published == 0 || number + ring_.cells() == expected) return Slot{};
            return fail(error::internal_damaged,
                        "rank {} found slot {} from rank {} numbered {}: the segment is damaged", options_.self,
                        expected, options_.peer, number)
                .about({.rank = options_.peer, .peer = options_.self});
        }
        const uint8_t where = uint8_t(header.told);
        info = {where, header.told >> 8, uint32_t(published)};
        if (!RingLayout::is_inline(where)) info.bytes = header.longer.bytes;
        if (where == SlotHeader::zero_copy) info.address = header.longer.address;
        if (info.address == 0 && info.bytes > ring_.slot_bytes())
            return fail(error::internal_damaged, "rank {} got a slot from rank {} that claims {} bytes; slots hold {}",
                        options_.self, options_.peer, info.bytes, ring_.slot_bytes())
                .about({.rank = options_.peer, .peer = options_.self});
        in_data_ = RingLayout::in_data(info);
        return Slot{in_data_ == 0 ? header.inline_data : ring_.data(begin_), ring_.slot_bytes()};
    }

    Status release() override {
        begin_ = ring_.next(begin_, in_data_);
        cell_ = ring_.after(cell_);
        if (in_data_ > 0) ring_.credits().slots.store(++slots_released_, std::memory_order_release);
        ring_.credits().released.store(++released_, std::memory_order_release);  // both pair with has_credit()
        // The next headers are already published; fetch them while the caller works.
        if (ring_.depth() >= many_slots) __builtin_prefetch(&ring_.header(ring_.after(cell_)));
        options_.host->wake();
        return ok();
    }

  private:
    ConnectionOptions options_;
    RingLayout ring_;
    size_t begin_ = 0;    // of the next message's data
    unsigned cell_ = 0;   // of the next message's header
    size_t in_data_ = 0;  // bytes of the received message in the ring
    uint64_t released_ = 0, slots_released_ = 0;
};

class ShmTransport final : public Transport {
  public:
    ShmTransport() : Transport("shm", capabilities()) {}
    std::string can_connect(const ConnectionOptions& options) const override {
        return options.host == nullptr ? "the ranks are not on one host" : "";
    }
    Result<std::unique_ptr<Receiver>> listen(const ConnectionOptions& options, Blob& address) const override;
    Result<std::unique_ptr<Sender>> connect(const ConnectionOptions& options, const Blob& address) const override;
};

Result<std::unique_ptr<Receiver>> ShmTransport::listen(const ConnectionOptions& options, Blob& address) const {
    const size_t offset = *options.heap_used;
    const auto fits = [&](size_t ring_bytes, size_t most) {
        return offset + RingLayout::bytes_of(options.depth, options.slot_bytes, ring_bytes) <= most;
    };
    if (options.depth < 1 || !fits(0, options.host->heaps().connections_end()))
        return fail(error::shm_full,
                    "rank {} has no room for a connection from rank {}: {} slots of {} bytes. Use fewer channels "
                    "(WEFT_CHANNELS) or smaller tiles (WEFT_TILE_BYTES)",
                    options.self, options.peer, options.depth, options.slot_bytes)
            .about({.rank = options.self, .peer = options.peer});
    const bool ring = options.ring_bytes >= RingLayout::least_ring_bytes(options.depth, options.slot_bytes) &&
                      fits(options.ring_bytes, rings_end(*options.host));
    const size_t ring_bytes = ring ? options.ring_bytes : 0;
    const size_t bytes = RingLayout::bytes_of(options.depth, options.slot_bytes, ring_bytes);
    WEFT_TRY(options.host->heaps().back(options.host->place(options.self), offset, bytes));
    *options.heap_used += bytes;
    address.words[0] = offset;
    address.words[1] = uint64_t(options.depth);
    address.words[2] = options.slot_bytes;
    address.words[3] = ring_bytes;
    return std::unique_ptr<Receiver>(new ShmReceiver(
        options,
        RingLayout(heap_of(*options.host, options.self) + offset, options.depth, options.slot_bytes, ring_bytes)));
}

Result<std::unique_ptr<Sender>> ShmTransport::connect(const ConnectionOptions& options, const Blob& address) const {
    const auto [offset, depth, slot_bytes, ring_bytes] =
        std::tuple{address.words[0], address.words[1], address.words[2], address.words[3]};
    if (depth != uint64_t(options.depth) || slot_bytes != options.slot_bytes)
        return fail(error::mismatch_algorithm,
                    "rank {} listens to rank {} with {} slots of {} bytes, but rank {} expects {} of {}: the ranks "
                    "chose differently",
                    options.peer, options.self, depth, slot_bytes, options.self, options.depth, options.slot_bytes)
            .about({.rank = options.peer, .peer = options.self});
    const size_t end = options.host->heaps().connections_end();
    if (offset % line_bytes != 0 || offset > end || ring_bytes > end ||
        (ring_bytes > 0 && ring_bytes < RingLayout::least_ring_bytes(options.depth, slot_bytes)) ||
        RingLayout::bytes_of(options.depth, slot_bytes, ring_bytes) > end - offset)
        return fail(error::internal_damaged, "rank {} says that it listens outside its heap", options.peer)
            .about({.rank = options.peer, .peer = options.self});
    return std::unique_ptr<Sender>(new ShmSender(
        options, RingLayout(heap_of(*options.host, options.peer) + offset, options.depth, slot_bytes, ring_bytes)));
}

}  // namespace

const Transport& shm_transport() {
    static const ShmTransport row;
    return row;
}

}  // namespace weft::internal
