// engine.cpp: the engine's thread and the calls that change its objects.
#include <cerrno>

#include "tests/verbs/fake/fake.hpp"

namespace weft::internal::test::fake_ibverbs {

namespace {

namespace state = verbs::state;
namespace attribute = verbs::attribute;

bool is_ipv4(const uint8_t* gid) {
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(gid, mapped, sizeof mapped) == 0;
}

}  // namespace

Engine& Engine::get() {
    static Engine* const engine = new Engine;
    return *engine;
}

void Engine::open(Context& context) {
    std::lock_guard life(life_);
    std::lock_guard held(mutex_);
    contexts_.insert(&context);
    if (thread_.joinable()) return;
    if (!wire_) wire_ = std::make_unique<Wire>();
    next_pair_ = uint32_t(World::get().random(1 << 14));
    ends_ = false;
    thread_ = std::thread([this] { run(); });
}

void Engine::close(Context& context) {
    std::lock_guard life(life_);
    {
        std::lock_guard held(mutex_);
        contexts_.erase(&context);
        if (!contexts_.empty()) return;
    }
    ends_ = true;
    wire_->wake();
    thread_.join();
    arrived_.clear();
    wire_.reset();
}

void Engine::run() {
    while (!ends_) {
        const bool busy = turn();
        for (const std::string& statement : World::get().take_due()) World::get().run(statement);
        if (busy) continue;
        asleep_ = true;
        if (!work_.exchange(false) && !ends_) wire_->sleep(sleep_us_);
        asleep_ = false;
    }
}

bool Engine::turn() {
    std::lock_guard held(mutex_);
    sleep_us_ = 100'000;
    bool busy = false;
    for (const Message& message : wire_->receive()) arrived_.push_back(message);
    for (std::deque<Message> all = std::exchange(arrived_, {}); const Message& message : all) {
        handle(message);
        busy = true;
    }
    const int64_t now = now_us();
    for (const auto& row : pairs_) busy = progress(*row.second, now) || busy;
    return busy || !arrived_.empty();
}

bool Engine::progress(Pair& pair, int64_t now) {
    if (pair.now == state::error) {
        bool posted;
        {
            std::lock_guard held(pair.lock);
            posted = !pair.posted.empty() || !pair.receives.empty();
        }
        if (posted) flush(pair);
        return posted;
    }
    bool busy = land(pair, now, false);
    busy = send_some(pair, now) || busy;
    // A thread that slept reads the answers before it looks at the clock.
    return (arrived_.empty() && check_deadline(pair, now)) || busy;
}

uint32_t Engine::add(Pair& pair) {
    std::lock_guard held(mutex_);
    do next_pair_ = (next_pair_ + 1) % (1 << 14);
    while (next_pair_ < 2 || pairs_.count(uint32_t(wire_->slot()) << 14 | next_pair_) > 0);
    pair.qp_num = uint32_t(wire_->slot()) << 14 | next_pair_;
    pairs_[pair.qp_num] = &pair;
    return pair.qp_num;
}

void Engine::remove(Pair& pair) {
    std::lock_guard held(mutex_);
    land(pair, now_us(), true);
    pairs_.erase(pair.qp_num);
}

void Engine::add(Region& region) {
    std::lock_guard held(mutex_);
    region.handle = region.lkey = next_key_++;
    region.rkey = region.lkey | remote_key;
    regions_[region.lkey] = &region;
}

// Acknowledged data lands first.
void Engine::remove(Region& region) {
    std::lock_guard held(mutex_);
    for (const auto& row : pairs_) land(*row.second, now_us(), true);
    regions_.erase(region.lkey);
    const auto* const begin = static_cast<const std::byte*>(region.address);
    std::erase_if(held_,
                  [&](const HeldWrite& write) { return write.target >= begin && write.target < begin + region.bytes; });
}

int Engine::check(const Pair& pair, const abi::PairAttributes& attributes, int mask) const {
    const auto has = [&](int bits) { return (mask & bits) == bits; };
    const int now = pair.now;
    Device& device = *fake(pair.context).of;
    switch (attributes.state) {
        case state::reset: return 0;
        case state::error: return now == state::reset ? EINVAL : 0;
        case state::init:
            if (now != state::reset && now != state::init) return EINVAL;
            if (!has(attribute::pkey_index | attribute::port | attribute::access)) return EINVAL;
            return device.has_port(attributes.times.port_num) &&
                           device.port(attributes.times.port_num).keys.count(attributes.pkey_index[0]) > 0
                       ? 0
                       : EINVAL;
        case state::ready_to_receive: {
            if (now != state::init) return EINVAL;
            if (!has(attribute::address | attribute::path_mtu | attribute::dest_qp_num | attribute::rq_psn |
                     attribute::max_dest_rd_atomic | attribute::min_rnr_timer))
                return EINVAL;
            const abi::Address& address = attributes.address[0];
            if (address.port_num != pair.attributes.times.port_num) return EINVAL;
            const Port& port = port_of(pair);
            if (attributes.mtu < 1 || attributes.mtu > port.mtu) return EINVAL;
            if (!address.is_global) return port.layer == verbs::link_ethernet || port.grh_required ? EINVAL : 0;
            const auto gid = port.gids.find(address.grh.sgid_index);
            if (gid == port.gids.end()) return EINVAL;
            for (const auto* errors : {&port.refused, &port.pathless})
                if (const auto row = errors->find(address.grh.sgid_index); row != errors->end()) return row->second;
            return is_ipv4(gid->second.gid) == is_ipv4(address.grh.dgid) ? 0 : EINVAL;
        }
        case state::ready_to_send:
            if (now != state::ready_to_receive && now != state::ready_to_send) return EINVAL;
            return has(attribute::timeout | attribute::retry_cnt | attribute::rnr_retry | attribute::sq_psn |
                       attribute::max_rd_atomic)
                       ? 0
                       : EINVAL;
        default: return EINVAL;
    }
}

void Engine::reset(Pair& pair) {
    land(pair, now_us(), true);
    std::lock_guard held(pair.lock);
    pair.posted.clear();
    pair.receives.clear();
    pair.flying.clear();
    pair.sent = 0;
    pair.sends_used = pair.receives_used = pair.unsignaled = 0;
    for (Queue* queue : {&fake(pair.send_queue), &fake(pair.receive_queue)}) {
        std::lock_guard queue_held(queue->lock);
        std::erase_if(queue->entries_held, [&](const QueueEntry& entry) { return entry.pair == &pair; });
        queue->count.store(queue->entries_held.size());
    }
}

int Engine::modify(Pair& pair, const abi::PairAttributes& attributes, int mask) {
    std::lock_guard held(mutex_);
    if (fake(pair.context).of->removed) return EIO;
    if (!(mask & attribute::state)) return EINVAL;
    {
        std::lock_guard world(World::get().mutex);
        if (const int error = check(pair, attributes, mask)) return error;
    }
    abi::PairAttributes& known = pair.attributes;
    switch (attributes.state) {
        case state::reset: reset(pair); break;
        case state::init:
            known.access = attributes.access;
            known.times.port_num = attributes.times.port_num;
            break;
        case state::ready_to_receive:
            known.address[0] = attributes.address[0];
            known.numbers.dest_qp_num = attributes.numbers.dest_qp_num;
            known.times.min_rnr_timer = attributes.times.min_rnr_timer;
            pair.expected = attributes.numbers.rq_psn;
            pair.told = UINT64_MAX;
            pair.ece_used = pair.ece_own < 0 ? 0 : pair.ece_wanted & uint32_t(pair.ece_own);
            if (auto& left = fake(pair.context).of->connects_until_overrun; left > 0 && --left == 0) overrun(pair);
            break;
        case state::ready_to_send:
            known.times.timeout = attributes.times.timeout;
            known.times.retry_cnt = attributes.times.retry_cnt;
            known.times.rnr_retry = attributes.times.rnr_retry;
            pair.next_sequence = attributes.numbers.sq_psn;
            pair.retries = pair.rnr_retries = 0;
            pair.deadline_us = pair.wait_until_us = 0;
            break;
        default: break;
    }
    pair.now = attributes.state;
    pair.state = attributes.state;
    if (attributes.state == state::error) flush(pair);
    return 0;
}

void Engine::overrun(Pair& pair) {
    Queue& queue = fake(pair.send_queue);
    {
        std::lock_guard held(queue.lock);
        queue.overrun = true;
    }
    raise(fake(pair.context), {{.queue = &queue}, verbs::event::cq_error});
}

void Engine::set_port(Device& device, int number, bool up) {
    std::lock_guard held(mutex_);
    if (device.port(number).up.exchange(up) == up) return;
    for (Context* context : contexts_)
        if (context->of == &device)
            raise(*context, {{.port = number}, up ? verbs::event::port_active : verbs::event::port_error});
}

void Engine::raise_event(Device& device, int type, uint32_t number) {
    std::lock_guard held(mutex_);
    for (Context* context : contexts_) {
        if (context->of != &device) continue;
        abi::AsyncEvent event{{.port = 1}, type};
        const bool of_pair = type >= verbs::event::qp_fatal && type <= verbs::event::path_migration_error;
        if (of_pair || type == verbs::event::cq_error || type == verbs::event::last_wqe_reached) {
            const auto found = std::find_if(pairs_.begin(), pairs_.end(), [&](const auto& row) {
                return row.second->context == context && (number == 0 || row.first == number);
            });
            if (found == pairs_.end()) continue;
            if (type == verbs::event::cq_error) {
                overrun(*found->second);
                continue;
            }
            event.element.pair = found->second;
        }
        raise(*context, event);
    }
}

void Engine::remove_device(Device& device, bool loses) {
    std::lock_guard held(mutex_);
    device.removed = true;
    for (Context* context : contexts_)
        if (context->of == &device) raise(*context, {{.port = 0}, verbs::event::device_fatal});
    for (const auto& row : pairs_)
        if (fake(row.second->context).of == &device && row.second->now != state::reset) {
            row.second->now = state::error;
            if (loses) row.second->units.clear(), row.second->pieces.clear();
            flush(*row.second);
        }
}

}  // namespace weft::internal::test::fake_ibverbs
