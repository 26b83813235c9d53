// connection.hpp: a connection from rank 1 to rank 0 of a host segment of this process, over any transport.
#pragma once
#include <sched.h>

#include <cstring>
#include <memory>
#include <vector>

#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "src/base/process_token.hpp"
#include "src/net/secret.hpp"
#include "src/registry.hpp"
#include "src/segment/flag_block.hpp"
#include "tests/catch.hpp"
#include "tests/subprocess.hpp"

namespace weft::internal::test {

// The rows that can be used here and that WEFT_TRANSPORTS allows. RDMA may be missing on a machine, and UCX is not used
// unless it is named.
inline const std::vector<const Transport*>& usable_transports() {
    static const std::vector<const Transport*> rows = [] {
        std::vector<const Transport*> usable;
        const NameList allowed(options().transports);
        for (const Transport* row : registry::transports()) {
            if (!allowed.admits(row->name)) continue;
            const std::string name = row->name;
            if ((name == "verbs" || name == "ucx") && !row->available().empty()) continue;
            usable.push_back(row);
        }
        return usable;
    }();
    return rows;
}

// The slots of both ends in memory of the test (Capability::given_slots), by rank; null: the transport's own.
struct GivenSlots {
    std::byte* data[2] = {};
    const RegisteredMemory* memory[2] = {};
};

struct Connection {
    GivenSlots given;
    std::shared_ptr<Segment> segment;
    net::Identity identity;
    size_t ring_bytes;
    size_t heap_used[2] = {FlagBlock::heap_bytes, FlagBlock::heap_bytes};  // of the receiver and of the sender
    std::unique_ptr<Receiver> receiver;
    std::unique_ptr<Sender> sender;

    Connection(const Transport& transport, int depth, size_t slot_bytes, size_t ring = 0, GivenSlots slots = {})
        : given(slots), ring_bytes(ring) {
        auto made = Segment::create(2);
        REQUIRE(made.ok());
        segment = *made;
        net::Secret secret;
        net::random_bytes(secret.key.data(), secret.key.size());
        identity = net::Identity::of(secret);
        for (int rank = 0; rank < 2; ++rank) {
            segment->row(rank).process = process_token();
            segment->row(rank).pid = getpid();
            segment->rank_info(rank).pid = getpid();
        }
        Blob blob;
        auto listening = transport.listen(options(0, depth, slot_bytes), blob);
        REQUIRE(listening.ok());
        receiver = std::move(*listening);
        auto connected = transport.connect(options(1, depth, slot_bytes), blob);
        REQUIRE(connected.ok());
        sender = std::move(*connected);
    }
    ConnectionOptions options(int self, int depth, size_t slot_bytes) {
        return {self,
                1 - self,
                0,
                depth,
                slot_bytes,
                segment.get(),
                &heap_used[self],
                &identity,
                nullptr,
                ring_bytes,
                given.data[self],
                given.memory[self]};
    }

    std::string secret_text() const {
        std::string text;
        for (const unsigned char byte : identity.secret.key) text += fmt::format("{:02x}", byte);
        return text;
    }

    // False: no credit. The message is `bytes` of the number's low byte.
    bool send(uint64_t number, size_t bytes) {
        auto slot = sender->acquire();
        if (!slot) FAIL(slot.status().sentence());
        if (!*slot) return false;
        REQUIRE(slot->capacity >= bytes);
        memset(slot->data, int(number & 0xff), bytes);
        REQUIRE(sender->publish({bytes, number, uint32_t(number * 7)}).ok());
        return true;
    }
    // As eventually(), with many attempts before each sleep: some messages need several calls of both ends.
    bool soon(auto&& condition) {
        return eventually([&] {
            for (int attempt = 0; attempt < 1000; ++attempt) {
                if (condition()) return true;
                push();
                if (attempt > 20) sched_yield();  // a transport with threads needs the processor
            }
            return false;
        });
    }
    // The message arrives in time: at once in shared memory, soon over a network.
    bool arrives(uint64_t number, size_t bytes) {
        return soon([&] { return receive(number, bytes); });
    }
    // True: the sender holds nothing back.
    bool push() {
        auto through = sender->progress();
        if (!through) FAIL(through.status().sentence());
        return *through;
    }

    // False: nothing there. Checks that it is this message, whole; releases it.
    bool receive(uint64_t number, size_t bytes) {
        SlotInfo info;
        auto slot = receiver->receive(info);
        if (!slot) FAIL(slot.status().sentence());
        if (!*slot) return false;
        REQUIRE(info.operation == number);
        REQUIRE(info.fingerprint == uint32_t(number * 7));
        REQUIRE(info.bytes == bytes);
        for (size_t i = 0; i < bytes; ++i)
            if (slot->data[i] != std::byte(number & 0xff))
                FAIL("byte " << i << " of message " << number << " is wrong");
        REQUIRE(receiver->release().ok());
        return true;
    }
};

}  // namespace weft::internal::test
