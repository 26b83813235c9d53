// shm.cpp: connections between ranks of one host: a ring of slots in the receiver's heap of the shared segment.
// The sender owns a slot from the credit to the publication, the receiver from there to the release. The slot's
// sequence word is the publication (release, pairs with the acquire in receive()); the count of released slots, in a
// line of its own, is the credit (release, pairs with the acquire in acquire()).
#include "transports/shm/shm.hpp"

namespace weft {

namespace {

struct alignas(line_bytes) Credits {
    std::atomic<uint64_t> released;  // slots given back by the receiver so far
};

constexpr int many_slots = 16;

// What lies in the receiver's heap: Credits, then `depth` times SlotHeader + data.
struct Place {
    std::byte* base;
    int depth;
    size_t slot_bytes;

    static size_t stride_of(size_t slot_bytes) {
        return sizeof(SlotHeader) + (slot_bytes + line_bytes - 1) / line_bytes * line_bytes;
    }
    static size_t bytes_of(int depth, size_t slot_bytes) {
        return sizeof(Credits) + stride_of(slot_bytes) * size_t(depth);
    }
    static bool is_few(size_t bytes) { return bytes <= sizeof SlotHeader::few; }
    Credits& credits() const { return *reinterpret_cast<Credits*>(base); }
    SlotHeader& header(uint64_t index) const {
        return *reinterpret_cast<SlotHeader*>(base + sizeof(Credits) +
                                              stride_of(slot_bytes) * (index % uint64_t(depth)));
    }
    std::byte* data(uint64_t index) const { return reinterpret_cast<std::byte*>(&header(index)) + sizeof(SlotHeader); }
};

class ShmSender final : public Sender {
  public:
    ShmSender(const ConnectionOptions& options, Place place) : options_(options), place_(place) {}

    Result<Slot> acquire() override {
        if (published_ - released_ >= uint64_t(place_.depth)) {
            released_ = place_.credits().released.load(std::memory_order_acquire);  // pairs with release()
            if (published_ - released_ > uint64_t(place_.depth))
                return fail(weftInternalError,
                            "rank {} got {} credits of {} slots from rank {}: the segment is damaged", options_.self,
                            released_, published_, options_.peer);
            if (published_ - released_ == uint64_t(place_.depth)) return Slot{};
        }
        return Slot{place_.data(published_), place_.slot_bytes};
    }

    Status publish(const SlotInfo& info) override {
        SlotHeader& header = place_.header(published_);
        header.bytes = info.bytes;
        header.fingerprint = info.fingerprint;
        header.operation = info.operation;
        header.lent = info.address != 0;
        if (info.address != 0)
            memcpy(header.few, &info.address, sizeof info.address);
        else if (Place::is_few(info.bytes))
            memcpy(header.few, place_.data(published_), sizeof header.few);
        header.sequence.store(++published_, std::memory_order_release);  // pairs with receive()
        if (info.address != 0) lent_ = published_;
        options_.host->wake();
        return ok();
    }

    bool settled() override {
        return released_ >= lent_ ||
               place_.credits().released.load(std::memory_order_acquire) >= lent_;  // pairs with release()
    }

  private:
    ConnectionOptions options_;
    Place place_;
    uint64_t published_ = 0;
    uint64_t released_ = 0;  // as last read
    uint64_t lent_ = 0;      // the last slot that holds an address
};

class ShmReceiver final : public Receiver {
  public:
    ShmReceiver(const ConnectionOptions& options, Place place) : options_(options), place_(place) {}

    Result<Slot> receive(SlotInfo& info) override {
        SlotHeader& header = place_.header(released_);
        const uint64_t sequence = header.sequence.load(std::memory_order_acquire);  // pairs with publish()
        if (sequence != released_ + 1) {
            // A ring cell holds nothing yet, or what was released a round ago; anything else is damage.
            if (sequence == 0 || sequence + uint64_t(place_.depth) == released_ + 1) return Slot{};
            return fail(weftInternalError, "rank {} found slot {} from rank {} numbered {}: the segment is damaged",
                        options_.self, released_ + 1, options_.peer, sequence);
        }
        info = {header.bytes, header.operation, header.fingerprint};
        if (header.lent != 0) memcpy(&info.address, header.few, sizeof info.address);
        if (header.lent == 0 && info.bytes > place_.slot_bytes)
            return fail(weftInternalError, "rank {} got a slot from rank {} that claims {} bytes; slots hold {}",
                        options_.self, options_.peer, info.bytes, place_.slot_bytes);
        return Slot{Place::is_few(info.bytes) ? header.few : place_.data(released_), place_.slot_bytes};
    }

    Status release() override {
        place_.credits().released.store(++released_, std::memory_order_release);  // pairs with acquire()
        // Many slots are for senders that are ahead: the next headers are already there, and come while we go on.
        if (place_.depth >= many_slots) __builtin_prefetch(&place_.header(released_ + 1));
        options_.host->wake();
        return ok();
    }

  private:
    ConnectionOptions options_;
    Place place_;
    uint64_t released_ = 0;
};

std::string can_connect(const ConnectionOptions& options) {
    if (options.host == nullptr) return "the ranks are not on one host";
    return {};
}

Result<std::unique_ptr<Receiver>> listen(const ConnectionOptions& options, Blob& address) {
    const size_t bytes = Place::bytes_of(options.depth, options.slot_bytes);
    const size_t offset = *options.heap_used;
    if (options.depth < 1 || offset + bytes > HostGroup::connections_end)
        return fail(weftSystemError,
                    "rank {} has no room for a connection from rank {}: {} slots of {} bytes; fewer channels "
                    "(WEFT_CHANNELS) or smaller tiles (WEFT_TILE_BYTES) fit",
                    options.self, options.peer, options.depth, options.slot_bytes);
    WEFT_TRY(options.host->back(options.self, offset, bytes));
    *options.heap_used += (bytes + line_bytes - 1) / line_bytes * line_bytes;
    address.words[0] = offset;
    address.words[1] = uint64_t(options.depth);
    address.words[2] = options.slot_bytes;
    return std::unique_ptr<Receiver>(
        new ShmReceiver(options, {options.host->heap(options.self) + offset, options.depth, options.slot_bytes}));
}

Result<std::unique_ptr<Sender>> connect(const ConnectionOptions& options, const Blob& address) {
    const auto [offset, depth, slot_bytes] = std::tuple{address.words[0], address.words[1], address.words[2]};
    if (depth != uint64_t(options.depth) || slot_bytes != options.slot_bytes)
        return fail(weftMismatch,
                    "rank {} listens to rank {} with {} slots of {} bytes where {} of {} were expected: the ranks "
                    "chose differently",
                    options.peer, options.self, depth, slot_bytes, options.depth, options.slot_bytes);
    if (offset % line_bytes != 0 || offset > HostGroup::connections_end ||
        Place::bytes_of(options.depth, slot_bytes) > HostGroup::connections_end - offset)
        return fail(weftInternalError, "rank {} says that it listens outside its heap", options.peer);
    return std::unique_ptr<Sender>(
        new ShmSender(options, {options.host->heap(options.peer) + offset, options.depth, options.slot_bytes}));
}

std::string available() { return {}; }

}  // namespace

const Transport shm_transport = {"shm", can_connect, listen, connect, available};

}  // namespace weft
