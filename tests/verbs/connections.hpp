// connections.hpp: two ranks of one communicator in this process, with connections over the fake libibverbs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/base/options.hpp"
#include "src/net/secret.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/patience.hpp"
#include "tests/verbs/side.hpp"
#include "transports/verbs/settings.hpp"
#include "transports/verbs/verbs.hpp"

namespace weft::internal::test {

inline const FakeVerbs& fake_verbs() {
    static const FakeVerbs fake(FAKE_IBVERBS_LIBRARY);
    return fake;
}

// Settings for the fake: failures are found in milliseconds. Without `devices` all of them are used.
inline verbs::Settings quick_settings(const std::string& devices = "=fake0") {
    verbs::Settings settings;
    settings.library = FAKE_IBVERBS_LIBRARY;
    settings.devices = taken(verbs::DeviceFilter::read("WEFT_IB_DEVICES", devices));
    settings.path.timeout = 10;
    settings.path.retries = 4;
    settings.timeout_given = true;
    settings.pairs_per_rail = 1;
    return settings;
}

// Restores the settings at its end.
struct WithSettings {
    explicit WithSettings(const verbs::Settings& settings) { verbs::set_settings(settings); }
    ~WithSettings() { verbs::set_settings(quick_settings()); }
};

// The ends of a connection between ranks 0 and 1.
struct Line {
    int from = 0;  // the sender's rank
    int depth = 2;
    size_t slot_bytes = 1'000;
    std::unique_ptr<Receiver> receiver;
    std::unique_ptr<Sender> sender;
    Status failure;  // of listen or connect
    uint64_t sent = 0, received = 0;

    static std::byte byte_of(uint64_t number, size_t index) {
        return std::byte(number * 131 + index * 7 + (index >> 8));
    }
    static size_t length_of(uint64_t number, size_t most) { return size_t(number * 2654435761u) % (most + 1); }

    // False: no credit. Throws its errors.
    bool send() {
        Slot slot = taken(sender->acquire());
        if (!slot) return false;
        const size_t bytes = length_of(sent, slot_bytes);
        for (size_t i = 0; i < bytes; ++i) slot.data[i] = byte_of(sent, i);
        done(sender->publish({bytes, sent, uint32_t(sent * 7)}));
        ++sent;
        return true;
    }
    // While the sender goes on.
    bool arrives() { return (void)taken(sender->progress()), receive(); }
    bool receive() {
        SlotInfo info;
        const Slot slot = taken(receiver->receive(info));
        if (!slot) return false;
        if (info.operation != received || info.bytes != length_of(received, slot_bytes) ||
            info.fingerprint != uint32_t(received * 7))
            throw std::runtime_error(fmt::format("message {} is another", received));
        for (size_t i = 0; i < info.bytes; ++i)
            if (slot.data[i] != byte_of(received, i))
                throw std::runtime_error(fmt::format("byte {} of message {} is wrong", i, received));
        done(receiver->release());
        ++received;
        return true;
    }
};

class TwoRanks {
  public:
    TwoRanks() {
        net::Secret secret;
        net::random_bytes(secret.key.data(), secret.key.size());
        identity_ = net::Identity::of(secret);
    }
    const net::Identity& identity() const { return identity_; }
    ConnectionOptions options(int self, const Line& line) const {
        return {
            .self = self, .peer = 1 - self, .depth = line.depth, .slot_bytes = line.slot_bytes, .identity = &identity_};
    }
    Line line(int from, int depth, size_t slot_bytes) const {
        Line made{.from = from, .depth = depth, .slot_bytes = slot_bytes, .receiver = {}, .sender = {}, .failure = {}};
        Blob blob;
        auto receiver = verbs_transport().listen(options(1 - from, made), blob);
        if (!receiver) {
            made.failure = receiver.take_status();
            return made;
        }
        made.receiver = std::move(*receiver);
        auto sender = verbs_transport().connect(options(from, made), blob);
        if (!sender) {
            made.failure = sender.take_status();
            return made;
        }
        made.sender = std::move(*sender);
        return made;
    }

  private:
    net::Identity identity_;
};

}  // namespace weft::internal::test
