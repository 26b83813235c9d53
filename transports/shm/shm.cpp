// shm.cpp: connections between ranks of one host: a ring of headers and one of data in the receiver's heap of the shared
// segment. The sender owns a slot from the credit to the publication, the receiver from there to the release. The slot's
// sequence word is the publication (release, pairs with the acquire in receive()); the count of released slots, in a
// line of its own, is the credit (release, pairs with the acquire in acquire()).
// A slot's data begin where those of the slot before end: both ends reckon alike, from the bytes that headers tell. So data
// go round through all of the ring whatever the messages' size is, and nobody writes lines that the other still has in
// its second-level cache, which takes several times as long.
#include "transports/shm/shm.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace weft {

namespace {

struct alignas(line_bytes) Credits {
    std::atomic<uint64_t> released;  // slots given back by the receiver so far
};

constexpr int many_slots = 16;

// What lies in the receiver's heap: Credits, `depth` times SlotHeader, then the ring of data.
class Place {
  public:
    Place(std::byte* base, const ConnectionOptions& options)
        : base_(base),
          depth_(unsigned(options.depth)),
          slot_bytes_(options.slot_bytes),
          last_begin_(ring_bytes(options) - rounded(options.slot_bytes)) {}

    static size_t bytes_of(const ConnectionOptions& options) {
        return sizeof(Credits) + sizeof(SlotHeader) * size_t(options.depth) + ring_bytes(options);
    }
    static bool is_few(size_t bytes) { return bytes <= sizeof SlotHeader::few; }
    unsigned depth() const { return depth_; }
    size_t slot_bytes() const { return slot_bytes_; }
    Credits& credits() const { return *reinterpret_cast<Credits*>(base_); }
    SlotHeader& header(uint64_t index) const {
        return reinterpret_cast<SlotHeader*>(base_ + sizeof(Credits))[index % depth_];
    }
    std::byte* data(size_t begin) const { return base_ + sizeof(Credits) + sizeof(SlotHeader) * depth_ + begin; }
    // Where the data of the slot after this one begin.
    size_t next(size_t begin, size_t bytes) const {
        const size_t end = begin + rounded(bytes);
        return end <= last_begin_ ? end : 0;
    }

  private:
    static size_t rounded(size_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }
    // All slots' data and, before the ring begins anew, the place that is too small for one more.
    static size_t ring_bytes(const ConnectionOptions& options) {
        return std::max(rounded(options.slot_bytes) * size_t(options.depth + 1), rounded(options.ring_bytes));
    }
    std::byte* base_;
    unsigned depth_;
    size_t slot_bytes_, last_begin_;
};

class ShmSender final : public Sender {
  public:
    ShmSender(const ConnectionOptions& options, Place place) : options_(options), place_(place) {}

    Result<Slot> acquire() override {
        if (published_ - released_ >= place_.depth()) {
            released_ = place_.credits().released.load(std::memory_order_acquire);  // pairs with release()
            if (published_ - released_ > place_.depth())
                return fail(weftInternalError,
                            "rank {} got {} credits of {} slots from rank {}: the segment is damaged", options_.self,
                            released_, published_, options_.peer);
            if (published_ - released_ == place_.depth()) return Slot{};
        }
        return Slot{place_.data(begin_), place_.slot_bytes()};
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
            memcpy(header.few, place_.data(begin_), sizeof header.few);
        else
            begin_ = place_.next(begin_, info.bytes);
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
    size_t begin_ = 0;  // of the data of the slot that is next
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
            if (sequence == 0 || sequence + place_.depth() == released_ + 1) return Slot{};
            return fail(weftInternalError, "rank {} found slot {} from rank {} numbered {}: the segment is damaged",
                        options_.self, released_ + 1, options_.peer, sequence);
        }
        info = {header.bytes, header.operation, header.fingerprint};
        if (header.lent != 0) memcpy(&info.address, header.few, sizeof info.address);
        if (header.lent == 0 && info.bytes > place_.slot_bytes())
            return fail(weftInternalError, "rank {} got a slot from rank {} that claims {} bytes; slots hold {}",
                        options_.self, options_.peer, info.bytes, place_.slot_bytes());
        in_ring_ = header.lent == 0 && !Place::is_few(info.bytes) ? info.bytes : 0;
        return Slot{in_ring_ == 0 ? header.few : place_.data(begin_), place_.slot_bytes()};
    }

    Status release() override {
        begin_ = place_.next(begin_, std::exchange(in_ring_, 0));
        place_.credits().released.store(++released_, std::memory_order_release);  // pairs with acquire()
        // Many slots are for senders that are ahead: the next headers are already there, and come while we go on.
        if (place_.depth() >= many_slots) __builtin_prefetch(&place_.header(released_ + 1));
        options_.host->wake();
        return ok();
    }

  private:
    ConnectionOptions options_;
    Place place_;
    size_t begin_ = 0;    // of the data of the slot that is next
    size_t in_ring_ = 0;  // bytes there of the received slot
    uint64_t released_ = 0;
};

std::string can_connect(const ConnectionOptions& options) {
    if (options.host == nullptr) return "the ranks are not on one host";
    return {};
}

Result<std::unique_ptr<Receiver>> listen(const ConnectionOptions& options, Blob& address) {
    const size_t bytes = Place::bytes_of(options), offset = *options.heap_used;
    if (options.depth < 1 || offset + bytes > HostGroup::connections_end)
        return fail(weftSystemError,
                    "rank {} has no room for a connection from rank {}: {} slots of {} bytes; fewer channels "
                    "(WEFT_CHANNELS) or smaller tiles (WEFT_TILE_BYTES) fit",
                    options.self, options.peer, options.depth, options.slot_bytes);
    WEFT_TRY(options.host->back(options.self, offset, bytes));
    *options.heap_used += bytes;
    address.words[0] = offset;
    address.words[1] = uint64_t(options.depth);
    address.words[2] = options.slot_bytes;
    address.words[3] = options.ring_bytes;
    return std::unique_ptr<Receiver>(
        new ShmReceiver(options, Place(options.host->heap(options.self) + offset, options)));
}

Result<std::unique_ptr<Sender>> connect(const ConnectionOptions& options, const Blob& address) {
    const auto [offset, depth, slot_bytes, ring_bytes] =
        std::tuple{address.words[0], address.words[1], address.words[2], address.words[3]};
    if (depth != uint64_t(options.depth) || slot_bytes != options.slot_bytes || ring_bytes != options.ring_bytes)
        return fail(weftMismatch,
                    "rank {} listens to rank {} with {} slots of {} bytes, {} in all, where {} of {}, {} in all, were "
                    "expected: the ranks chose differently",
                    options.peer, options.self, depth, slot_bytes, ring_bytes, options.depth, options.slot_bytes,
                    options.ring_bytes);
    if (offset % line_bytes != 0 || offset > HostGroup::connections_end ||
        Place::bytes_of(options) > HostGroup::connections_end - offset)
        return fail(weftInternalError, "rank {} says that it listens outside its heap", options.peer);
    return std::unique_ptr<Sender>(new ShmSender(options, Place(options.host->heap(options.peer) + offset, options)));
}

std::string available() { return {}; }

}  // namespace

const Transport shm_transport = {"shm", can_connect, listen, connect, available};

}  // namespace weft
