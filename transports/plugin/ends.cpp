// ends.cpp: the two ends of a plugin's connection. They check what the plugin returns, and name both ranks in errors.
#include <utility>

#include "transports/plugin/plugin.hpp"

namespace weft::internal::plugin {

namespace {

// One end's functions and its ranks.
class End {
  public:
    End(const weftTransportPlugin_t& functions, const ConnectionOptions& options, void* handle)
        : functions_(functions), handle_(handle), self_(options.self), peer_(options.peer) {}
    const weftTransportPlugin_t& functions() const { return functions_; }
    void* handle() const { return handle_; }
    int self() const { return self_; }
    int peer() const { return peer_; }

    Status failed(const char* what, weftResult_t result) const {
        return fail(error::transport_broken, "rank {} cannot {} rank {} over {}: {}", self_, what, peer_,
                    functions_.name, error_text(functions_, result))
            .about({.rank = peer_, .peer = self_});
    }
    // True: done; false: not yet.
    Result<bool> done(const char* what, weftResult_t result) const {
        if (result == weftSuccess) [[likely]]
            return true;
        if (result == weftInProgress) return false;
        return failed(what, result);
    }

  private:
    const weftTransportPlugin_t& functions_;
    void* handle_;
    int self_, peer_;
};

void add(const End& end, void (*function)(void*, weftTransportWakeups_t*), Wakeups& wakeups) {
    const bool sleeps = (end.functions().capabilities & weftTransportSleeps) != 0;
    wakeups.by_time |= !sleeps;
    if (!sleeps) return;
    weftTransportWakeups_t its{};
    function(end.handle(), &its);
    for (int index = 0; index < its.count && index < WEFT_TRANSPORT_DESCRIPTORS_MAX; ++index)
        wakeups.descriptors.push_back(its.descriptors[index]);
    wakeups.ready |= its.ready != 0;
}

weftTransportMessage_t message_of(const SlotInfo& info) { return {info.bytes, info.operation, info.fingerprint, 0}; }

class PluginRemoteMemory final : public RemoteMemory {
  public:
    PluginRemoteMemory(const weftTransportPlugin_t& functions, void* remote) : functions_(functions), remote_(remote) {}
    PluginRemoteMemory(const PluginRemoteMemory&) = delete;
    PluginRemoteMemory& operator=(const PluginRemoteMemory&) = delete;
    ~PluginRemoteMemory() override { functions_.detach(remote_); }
    void* remote() const { return remote_; }

  private:
    const weftTransportPlugin_t& functions_;
    void* remote_;
};

class PluginSender final : public Sender {
  public:
    PluginSender(const End& end, size_t slot_bytes)
        : end_(end),
          slot_bytes_(slot_bytes),
          posts_((end.functions().capabilities & weftTransportPosts) != 0),
          one_sided_((end.functions().capabilities & weftTransportOneSided) != 0) {}
    ~PluginSender() override { end_.functions().closeSender(end_.handle()); }

    Result<Slot> acquire() override {
        weftTransportSlot_t slot{};
        auto done = end_.done("send to", end_.functions().acquire(end_.handle(), &slot));
        if (!done) return done.take_status();
        if (!*done) return Slot{};
        if (!slot.data || slot.capacity < slot_bytes_)
            return fail(error::internal_damaged,
                        "{} gave rank {} a slot of {} bytes for rank {}, where {} are expected", end_.functions().name,
                        end_.self(), slot.data ? slot.capacity : 0, end_.peer(), slot_bytes_)
                .about({.rank = end_.self(), .peer = end_.peer()});
        return Slot{static_cast<std::byte*>(slot.data), slot_bytes_};
    }
    Status publish(const SlotInfo& info) override {
        WEFT_TRY(check(info));
        const weftTransportMessage_t message = message_of(info);
        const weftResult_t result = end_.functions().publish(end_.handle(), &message);
        return result == weftSuccess ? ok() : end_.failed("send to", result);
    }
    Result<bool> send(const std::byte* data, const SlotInfo& info) override {
        if (!end_.functions().send) return Sender::send(data, info);
        WEFT_TRY(check(info));
        const weftTransportMessage_t message = message_of(info);
        return end_.done("send to", end_.functions().send(end_.handle(), data, &message));
    }
    Result<bool> progress() override { return end_.done("send to", end_.functions().progress(end_.handle())); }
    void add_wakeups(Wakeups& wakeups) override { add(end_, end_.functions().senderWakeups, wakeups); }

    Result<bool> post(const std::byte* data, const RegisteredMemory* memory, const SlotInfo& info) override {
        if (!posts_) return send(data, info);
        WEFT_TRY(check(info));
        const weftTransportMessage_t message = message_of(info);
        return end_.done("send to", end_.functions().post(end_.handle(), data, handle_of(memory), &message));
    }
    uint64_t sent() override { return posts_ ? end_.functions().sent(end_.handle()) : Sender::sent(); }

    Result<std::unique_ptr<RemoteMemory>> attach(std::span<const std::byte> key) override {
        if (!one_sided_) return Sender::attach(key);
        void* remote = nullptr;
        const weftResult_t result = end_.functions().attach(
            end_.handle(), reinterpret_cast<const unsigned char*>(key.data()), key.size(), &remote);
        if (result != weftSuccess) return end_.failed("attach memory of", result);
        return std::unique_ptr<RemoteMemory>(new PluginRemoteMemory(end_.functions(), remote));
    }
    Result<bool> put(const std::byte* own, const RegisteredMemory* memory, RemoteMemory& peer, size_t offset,
                     size_t bytes) override {
        if (!one_sided_) return Sender::put(own, memory, peer, offset, bytes);
        return end_.done("put to",
                         end_.functions().put(end_.handle(), own, handle_of(memory), remote(peer), offset, bytes));
    }
    Result<bool> get(std::byte* own, const RegisteredMemory* memory, RemoteMemory& peer, size_t offset,
                     size_t bytes) override {
        if (!one_sided_) return Sender::get(own, memory, peer, offset, bytes);
        return end_.done("get from",
                         end_.functions().get(end_.handle(), own, handle_of(memory), remote(peer), offset, bytes));
    }
    uint64_t transferred() override {
        return one_sided_ ? end_.functions().transferred(end_.handle()) : Sender::transferred();
    }

  private:
    static void* remote(RemoteMemory& peer) { return static_cast<PluginRemoteMemory&>(peer).remote(); }
    Status check(const SlotInfo& info) const {
        if (info.bytes <= slot_bytes_) return ok();
        return fail(error::internal_state, "rank {} would send {} bytes to rank {} in a slot of {}", end_.self(),
                    info.bytes, end_.peer(), slot_bytes_);
    }

    End end_;
    size_t slot_bytes_;
    bool posts_, one_sided_;
};

class PluginReceiver final : public Receiver {
  public:
    PluginReceiver(const End& end, size_t slot_bytes, int depth)
        : end_(end),
          slot_bytes_(slot_bytes),
          depth_(uint64_t(depth)),
          offers_((end.functions().capabilities & weftTransportOffers) != 0),
          offers_any_(offers_ && (end.functions().capabilities & weftTransportRegisters) == 0) {}
    ~PluginReceiver() override { end_.functions().closeReceiver(end_.handle()); }

    Result<Slot> receive(SlotInfo& info) override {
        weftTransportSlot_t slot{};
        weftTransportMessage_t message{};
        return checked(end_.functions().receive(end_.handle(), &slot, &message), slot, message, info);
    }
    Result<Slot> look_ahead(uint64_t ahead, SlotInfo& info) override {
        if (ahead == 0 || !end_.functions().lookAhead || ahead >= depth_) return Receiver::look_ahead(ahead, info);
        weftTransportSlot_t slot{};
        weftTransportMessage_t message{};
        return checked(end_.functions().lookAhead(end_.handle(), ahead, &slot, &message), slot, message, info);
    }
    Status release() override {
        ++messages_;
        const weftResult_t result = end_.functions().release(end_.handle());
        return result == weftSuccess ? ok() : end_.failed("receive from", result);
    }
    // Offers the target, so that the plugin receives there. Its memory is written inside of receive() only.
    Result<bool> receive_into(std::byte* target, size_t capacity, SlotInfo& info) override {
        if (offers_any_ && offered_ <= messages_) {
            offered_ = messages_ + 1;
            auto taken = offer(target, capacity, nullptr, messages_);
            if (!taken) return taken;
        }
        return Receiver::receive_into(target, capacity, info);
    }
    void add_wakeups(Wakeups& wakeups) override { add(end_, end_.functions().receiverWakeups, wakeups); }
    Result<bool> offer(std::byte* target, size_t capacity, RegisteredMemory* memory, uint64_t message) override {
        // Registered memory may be written at any time, so there must be a way to end that.
        if (!offers_ || withdrawn_ || (!offers_any_ && !end_.functions().withdraw)) return false;
        return end_.done("offer memory to",
                         end_.functions().offer(end_.handle(), target, capacity, handle_of(memory), message));
    }
    uint64_t next() const override { return messages_; }
    void withdraw() override {
        if (std::exchange(withdrawn_, true) || !offers_ || !end_.functions().withdraw) return;
        end_.functions().withdraw(end_.handle());
    }

  private:
    Result<Slot> checked(weftResult_t result, const weftTransportSlot_t& slot, const weftTransportMessage_t& message,
                         SlotInfo& info) const {
        auto done = end_.done("receive from", result);
        if (!done) return done.take_status();
        if (!*done) return Slot{};
        if (!slot.data || message.bytes > slot.capacity || message.bytes > slot_bytes_)
            return fail(error::internal_damaged,
                        "rank {} got a message from rank {} over {} that claims {} bytes; slots hold {}", end_.self(),
                        end_.peer(), end_.functions().name, message.bytes, slot_bytes_)
                .about({.rank = end_.peer(), .peer = end_.self()});
        info = {message.bytes, message.operation, message.fingerprint};
        return Slot{static_cast<std::byte*>(slot.data), slot.capacity};
    }

    End end_;
    size_t slot_bytes_;
    uint64_t depth_;
    bool offers_, offers_any_, withdrawn_ = false;
    uint64_t messages_ = 0;  // released
    uint64_t offered_ = 0;   // one more than the last message for which receive_into() has offered a target
};

}  // namespace

std::unique_ptr<Sender> make_sender(const weftTransportPlugin_t& functions, const ConnectionOptions& options,
                                    void* sender) {
    return std::make_unique<PluginSender>(End(functions, options, sender), options.slot_bytes);
}

std::unique_ptr<Receiver> make_receiver(const weftTransportPlugin_t& functions, const ConnectionOptions& options,
                                        void* receiver) {
    return std::make_unique<PluginReceiver>(End(functions, options, receiver), options.slot_bytes, options.depth);
}

}  // namespace weft::internal::plugin
