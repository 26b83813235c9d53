// point_to_point.cpp: a communicator's messages: the user's sends and receives, and the messages of uneven collectives.
// docs/design/connections.md, Point to point.
#include <algorithm>

#include "src/base/clock.hpp"
#include "src/comm/communicator.hpp"

namespace weft::internal {

namespace {

// Names of connection info, different from those of schedules' connections.
constexpr uint64_t messages_name = 0x5bd1e9955bd1e995u, parts_name = 0xc2b2ae3d27d4eb4fu;

// Polls of a single receive before it joins the messages that pause() waits for; about a microsecond.
constexpr int looks_at_once = 64;

Exchange::Caller caller_for(Collective collective) {
    switch (collective) {
        case Collective::gather_v: return Exchange::Caller::gather_v;
        case Collective::scatter_v: return Exchange::Caller::scatter_v;
        case Collective::all_gather_v: return Exchange::Caller::all_gather_v;
        case Collective::reduce_scatter_v: return Exchange::Caller::reduce_scatter_v;
        default: return Exchange::Caller::all_to_all_v;
    }
}

}  // namespace

Messages& Communicator::messages(std::unique_ptr<Messages>& which, uint64_t name) {
    if (!which) [[unlikely]]
        which = std::make_unique<Messages>(*segment_, rank_, link_settings(name), planner_.cpu_kernels(),
                                           planner_.streamed_message_bytes());
    return *which;
}

PeerLinks::Settings Communicator::link_settings(uint64_t name) {
    return {.identity = membership_ ? &membership_->identity() : nullptr,
            .name = name,
            .remote_slot_bytes = planner_.net_slot_bytes(),
            .heap_used = planner_.heap_used(),
            .uses_cma = planner_.agreed().cma_messages != 0,
            .maps_arenas = planner_.agreed().direct != 0};
}

Status Communicator::begin_message(const Call& call) {
    Exchange& exchange = messages(messages_, messages_name).exchange();
    if (exchange.idle() || dead_) {
        WEFT_TRY(usable());
        message_limit_.timeout_ms = call.settings.timeout_ms;
        waiting_.seen_here();
        watchdog_.begin();
    }
    message_limit_.timeout_ms = earlier(message_limit_.timeout_ms, call.settings.timeout_ms);
    const Operation& operation = call.operation;
    if (operation.collective == Collective::send)
        exchange.send(operation.root, call.send, operation.count, weftDataType_t(operation.type), {call.by});
    else
        exchange.receive(operation.root, call.receive, operation.count, weftDataType_t(operation.type), {call.by});
    return ok();
}

// Device messages first: if they are refused, no message has begun.
Status Communicator::begin_messages(std::span<const Call> messages) {
    WEFT_TRY(begin_device_messages(messages));
    std::vector<Call> copied;
    if (std::any_of(messages.begin(), messages.end(), [](const Call& message) { return message.copied; }))
        [[unlikely]] {
        copied.assign(messages.begin(), messages.end());
        WEFT_TRY(begin_copied_messages(copied));
        messages = copied;
    }
    for (const Call& message : messages)
        if (message.operation.space == Space::host) WEFT_TRY(begin_message(message));
    return ok();
}

Status Communicator::begin_device_messages(std::span<const Call> messages) {
    device_messages_.clear();
    const Call* first = nullptr;
    CallSettings settings;
    for (const Call& call : messages) {
        if (call.operation.space == Space::host) continue;
        if (!first) settings = call.settings;
        if (!first) first = &call;
        settings.timeout_ms = earlier(settings.timeout_ms, call.settings.timeout_ms);
        if (call.stream != first->stream)
            return fail(error::group_streams,
                        "messages of one group on device memory must go to one stream, because one kernel moves them "
                        "all");
        const bool outgoing = call.operation.collective == Collective::send;
        device_messages_.push_back({call.operation.root, outgoing,
                                    outgoing ? const_cast<void*>(call.send) : call.receive, call.operation.count,
                                    weftDataType_t(call.operation.type), call.by, call.mapped});
    }
    if (!first) return ok();
    WEFT_TRY(usable());
    if (Status prepared = device_->messages().prepare(device_messages_, first->stream); !prepared)
        return refuse_or_die(std::move(prepared));
    if (Status launched = device_->messages().launch(first->stream, settings); !launched)
        return die(std::move(launched));
    return ok();
}

Status Communicator::begin_uneven_on_device() {
    prepared_ = nullptr;
    if (call_.operation.collective == Collective::reduce_scatter_v) return launch_parts();
    if (call_.peer_buffers->counts.sent)
        return launch_uneven(
            device_->messages().prepare(CountedMessages{&call_.peer_buffers->counts, call_.send, call_.receive,
                                                        weftDataType_t(call_.operation.type), call_.mapped},
                                        call_.stream));
    device_messages_.clear();
    const auto add = [&](const std::vector<PeerBuffer>& peer_buffers, bool outgoing) {
        for (const PeerBuffer& peer_buffer : peer_buffers)
            device_messages_.push_back({peer_buffer.peer, outgoing, peer_buffer.data, peer_buffer.count,
                                        weftDataType_t(call_.operation.type), caller_for(call_.operation.collective),
                                        call_.mapped});
    };
    add(call_.peer_buffers->sends, true);
    add(call_.peer_buffers->receives, false);
    return launch_uneven(device_->messages().prepare(device_messages_, call_.stream));
}

Status Communicator::launch_uneven(Status prepared) {
    if (!prepared) return refuse_or_die(std::move(prepared));
    segment_->row(rank_).position.enter(++sequence_, call_.operation);
    on_device_ = true;
    if (Status launched = device_->messages().launch(call_.stream, call_.settings); !launched)
        return die(std::move(launched));
    return ok();
}

// A reduce-scatter of uneven parts is one reduce per rank. The kernels combine in rank order, as the host does.
Status Communicator::launch_parts() {
    const auto& sends = call_.peer_buffers->sends;
    for (int root = 0; root < ranks(); ++root) {
        const PeerBuffer& part =
            *std::find_if(sends.begin(), sends.end(), [&](const PeerBuffer& one) { return one.peer == root; });
        if (part.count == 0) continue;
        DeviceCall call{call_.operation,         part.data,     nullptr, call_.operand, call_.stream, call_.mapped,
                        call_.operand_on_device, call_.settings};
        call.settings.preference = 0;  // the user's preference is for calls of equal parts
        call.operation.collective = Collective::reduce;
        call.operation.root = root;
        call.operation.count = part.count;
        if (root == rank_) call.receive = call_.peer_buffers->receives[0].data;
        if (Status prepared = device_->collectives().prepare(call); !prepared)
            return on_device_ ? die(std::move(prepared)) : refuse_or_die(std::move(prepared));
        segment_->row(rank_).position.enter(++sequence_, device_->collectives().prepared());
        on_device_ = true;
        if (Status launched = device_->collectives().launch(call); !launched) return die(std::move(launched));
    }
    on_device_ = true;  // also if there was nothing to launch
    return ok();
}

Progress Communicator::advance_messages() {
    const Progress progress = messages_ ? advance(messages_->exchange()) : Progress::done;
    return progress == Progress::done && copying_messages_ ? end_copied_messages() : progress;
}

Progress Communicator::advance(Exchange& exchange) {
    const Progress progress = exchange.advance();
    if (progress == Progress::failed) [[unlikely]] {
        failure_ = die(exchange.take_failure());
        exchange.abandon();
    } else if (progress != Progress::blocked) {
        waiting_.stir();
    }
    return progress;
}

bool Communicator::moved_at_once(const Call& call) {
    if (call.operation.space != Space::host || call.copied || !messages_ || has_messages() || has_windows() ||
        !usable())
        return false;
    Exchange& exchange = messages_->exchange();
    const Operation& operation = call.operation;
    if (!exchange.is_simple(operation.root, operation.bytes())) return false;
    const auto type = weftDataType_t(operation.type);
    waiting_.seen_here();
    if (operation.collective == Collective::send)
        return exchange.send_at_once(operation.root, call.send, operation.count, type, {call.by});
    waited_for_.clear();
    waited_for_.insert(operation.root);
    for (int look = 0; look < looks_at_once; ++look) {
        if (exchange.receive_at_once(operation.root, call.receive, operation.count, type, {call.by}))
            return waiting_.stir(), true;
        if (waiting_.pause(waited_for_, false)) break;
    }
    return false;
}

Status Communicator::run_messages(std::span<const Call> messages) {
    if (messages.size() == 1 && moved_at_once(messages[0])) return ok();
    return see_through([&] { return begin_messages(messages); }, [&] { return advance_messages(); },
                       [] { return ok(); });
}

Status Communicator::begin_uneven() {
    in_call_ = uneven_ = true;
    prepared_ = nullptr;
    ++sequence_;
    waiting_.seen_here();
    segment_->row(rank_).position.enter(sequence_, call_.operation);
    watchdog_.begin();
    Exchange& exchange = messages(parts_, parts_name).exchange();
    const auto type = weftDataType_t(call_.operation.type);
    const Exchange::CallTag purpose{caller_for(call_.operation.collective), uint16_t(sequence_), call_.operation.op};
    if (call_.operation.collective == Collective::reduce_scatter_v) {
        partial_results_.begin(call_.operation, call_.operand, *call_.peer_buffers, rank_, planner_.cpu_kernels());
        for (const PeerBuffer& peer_buffer : call_.peer_buffers->sends)
            if (peer_buffer.peer != rank_) {
                exchange.receive(peer_buffer.peer, partial_results_.from(peer_buffer.peer),
                                 call_.peer_buffers->receives[0].count, type, purpose);
                exchange.send(peer_buffer.peer, partial_results_.to(peer_buffer), peer_buffer.count, type, purpose);
            }
        return ok();
    }
    for (const PeerBuffer& peer_buffer : call_.peer_buffers->receives)
        exchange.receive(peer_buffer.peer, peer_buffer.data, peer_buffer.count, type, purpose);
    for (const PeerBuffer& peer_buffer : call_.peer_buffers->sends)
        exchange.send(peer_buffer.peer, peer_buffer.data, peer_buffer.count, type, purpose);
    return ok();
}

Progress Communicator::advance_uneven() {
    const Progress progress = advance(parts_->exchange());
    if (progress != Progress::done || call_.operation.collective != Collective::reduce_scatter_v) return progress;
    try {
        partial_results_.reduce();
    } catch (const UserReductionFailed& failed) {
        failure_ = die(failed.status(rank_, sequence_, call_.operation));
        return Progress::failed;
    }
    return progress;
}

// The ranks that the call waits for.
const RankSet& Communicator::missing() const {
    return uneven_ ? parts_->exchange().missing() : prepared_ ? prepared_->run->missing() : missing_binding_;
}

Status Communicator::pause_for_messages(bool may_sleep) {
    const bool beside = has_messages();
    const Exchange *alone = beside ? &messages_->exchange() : nullptr, *parts = uneven_ ? &parts_->exchange() : nullptr;
    const RankSet* waits_for = beside ? &alone->missing() : &missing();
    if (beside && in_call_) {
        waited_for_ = missing();
        waited_for_.insert(alone->missing());
        waits_for = &waited_for_;
    }
    const bool sockets = (alone && alone->networked()) || (parts && parts->networked()) ||
                         (in_call_ && prepared_ && prepared_->plan.networked);
    // A put does not wake a rank that sleeps in poll().
    if ((alone && alone->connecting()) || (parts && parts->connecting())) may_sleep = may_sleep && !sockets;
    if (!(sockets ? waiting_.pause_on_sockets(*waits_for, may_sleep, add_descriptors_)
                  : waiting_.pause(*waits_for, may_sleep))) [[likely]]
        return ok();
    if (beside) waiting_.tell(alone->awaited());
    Status trouble;
    if (in_call_) {
        watch(call_limit_);
        trouble = watchdog_.look(missing(), sequence_, position().operation, waiting_.silence_us());
    }
    if (trouble && beside) {
        watch(message_limit_);
        trouble = watchdog_.look_at_partners(alone->missing(), waiting_.silence_us(),
                                             [&](int other) { return alone->owed_by(other); });
        messages_in_trouble_ = !trouble;
    }
    if (trouble) return ok();
    waiting_.stir();
    return die(std::move(trouble));
}

// A possible cause of a broken connection.
Status Communicator::cause() {
    if (in_call_) WEFT_TRY(watchdog_.cause(sequence_, position().operation));
    if (in_access_)
        WEFT_TRY(watchdog_.look_at_partners(one_sided_->missing(), INT64_MAX,
                                            [&](int other) { return one_sided_->owed_by(other); }));
    if (!has_messages()) return ok();
    const Exchange& alone = messages_->exchange();
    return watchdog_.look_at_partners(alone.missing(), INT64_MAX, [&](int other) { return alone.owed_by(other); });
}

}  // namespace weft::internal
