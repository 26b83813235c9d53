// responder.cpp: the engine's receiving half of a queue pair: takes requests in order and acknowledges them. Their
// data comes to memory later, in pieces and in any order. Only receive completions limit the order.
#include "tests/verbs/fake/fake.hpp"

namespace weft::internal::test::fake_ibverbs {

namespace {

namespace wc = verbs::wc;

constexpr size_t window = 64;  // pieces among which the next one is chosen

bool has_imm(int opcode) { return opcode == verbs::opcode::write_with_imm || opcode == verbs::opcode::send_with_imm; }
bool is_send(int opcode) { return opcode == verbs::opcode::send || opcode == verbs::opcode::send_with_imm; }

bool overlap(const Piece& one, const Piece& other) {
    return one.target < other.target + other.bytes && other.target < one.target + one.bytes;
}

}  // namespace

void Engine::deliver(const Pair& pair, const Message& message) {
    const Device& device = *fake(pair.context).of;
    if (!port_of(pair).up || device.removed) return;
    if (Wire::slot_of(message.header.target) == wire_->slot())
        arrived_.push_back(message);
    else
        wire_->send(message);
}

void Engine::handle(const Message& message) {
    const auto found = pairs_.find(message.header.target);
    if (found == pairs_.end()) return;
    Pair& pair = *found->second;
    const Device& device = *fake(pair.context).of;
    if (!port_of(pair).up || device.removed || pair.attributes.numbers.dest_qp_num != message.header.source) return;
    if (message.header.kind != Kind::request)
        handle_answer(pair, message);
    else if ((pair.now == verbs::state::ready_to_receive || pair.now == verbs::state::ready_to_send) &&
             reachable(pair, message.header) && pair.ece_used == message.header.ece)
        handle_request(pair, message);
}

// Whether the receiving port has the address to which the message goes.
bool Engine::reachable(const Pair& pair, const Header& header) const {
    const Port& port = port_of(pair);
    if (!header.global) return header.lid == port.lid;
    std::lock_guard held(World::get().mutex);
    return std::any_of(port.gids.begin(), port.gids.end(),
                       [&](const auto& row) { return memcmp(row.second.gid, header.gid, sizeof header.gid) == 0; });
}

std::byte* Engine::memory(const Pair& pair, uint32_t key, uint64_t address, uint64_t bytes, int access) const {
    const auto found = regions_.find(key);
    if (found == regions_.end() || found->second->domain != pair.domain) return nullptr;
    const Region& region = *found->second;
    if ((region.access & access) != access || address < region.address_of_peer || bytes > region.bytes ||
        address - region.address_of_peer > region.bytes - bytes)
        return nullptr;
    return static_cast<std::byte*>(region.address) + (address - region.address_of_peer);
}

void Engine::answer(Pair& pair, Kind kind, uint64_t sequence, int status) {
    Message message;
    message.header.kind = kind;
    message.header.source = pair.qp_num;
    message.header.target = pair.attributes.numbers.dest_qp_num;
    message.header.sequence = sequence;
    message.header.status = status;
    message.payload = std::make_shared<const std::vector<std::byte>>();
    deliver(pair, message);
}

// A request that breaks a rule fails the queue pairs at both ends.
void Engine::refuse(Pair& pair, const Message& message, int status, int event) {
    answer(pair, Kind::refused, message.header.sequence, status);
    raise(fake(pair.context), {{.pair = &pair}, event});
    flush(pair);
}

void Engine::handle_request(Pair& pair, const Message& message) {
    const Header& header = message.header;
    if (header.sequence > pair.expected) {
        if (std::exchange(pair.told, pair.expected) != pair.expected) answer(pair, Kind::resend, pair.expected);
        return;
    }
    const bool reads = header.opcode == verbs::opcode::read;
    const bool repeated = header.sequence < pair.expected;
    if (repeated) ++World::get().duplicate;
    if (repeated && !reads) return answer(pair, Kind::acknowledge, pair.expected - 1);

    Unit unit;
    unit.number = pair.next_unit;
    unit.data = message.payload;
    std::byte* target = nullptr;
    if (!is_send(header.opcode) && header.length > 0) {
        const int right = reads ? verbs::access::remote_read : verbs::access::remote_write;
        const bool remote = (header.rkey & remote_key) && (pair.attributes.access & uint32_t(right));
        if (remote) target = memory(pair, header.rkey & ~remote_key, header.address, header.length, right);
        if (target == nullptr) return refuse(pair, message, wc::remote_access, verbs::event::qp_access_error);
    }
    if (is_send(header.opcode) || has_imm(header.opcode)) {
        if (!take_receive(pair, message, unit)) return;
    }
    if (!repeated) ++pair.expected;
    if (reads) {
        unit.reads = true;
        unit.request = message;
    } else {
        answer(pair, Kind::acknowledge, header.sequence);
        if (!is_send(header.opcode))
            add_pieces(pair, unit, target, 0, header.length, of_gpu(header.rkey & ~remote_key));
    }
    const int64_t now = now_us();
    World& world = World::get();
    if (unit.completes && world.late_us > 0) unit.not_before_us = now + int64_t(world.random(uint64_t(world.late_us)));
    hold(pair, now);
    pair.units.push_back(std::move(unit));
    ++pair.next_unit;
}

// Takes the next receive request for a message. False: there is none, or it does not fit.
bool Engine::take_receive(Pair& pair, const Message& message, Unit& unit) {
    const Header& header = message.header;
    ReceiveEntry entry;
    {
        std::lock_guard held(pair.lock);
        if (pair.receives.empty()) {
            answer(pair, Kind::not_ready, header.sequence);
            return false;
        }
        entry = std::move(pair.receives.front());
        pair.receives.pop_front();
    }
    unit.completes = true;
    unit.completion.wr_id = entry.id;
    unit.completion.qp_num = pair.qp_num;
    unit.completion.src_qp = header.source;
    unit.completion.byte_len = uint32_t(header.length);
    unit.completion.opcode =
        is_send(header.opcode) ? verbs::completed::receive : verbs::completed::receive_write_with_imm;
    if (has_imm(header.opcode)) {
        unit.completion.imm_data = header.imm;
        unit.completion.wc_flags = verbs::completed::with_imm;
    }
    if (!is_send(header.opcode)) return true;
    size_t from = 0;
    int status = wc::success;
    for (const abi::Sge& piece : entry.pieces) {
        const size_t bytes = std::min<size_t>(piece.length, header.length - from);
        if (bytes == 0) break;
        std::byte* target = memory(pair, piece.lkey, piece.addr, bytes, verbs::access::local_write);
        if (target == nullptr) {
            status = wc::local_protection;
            break;
        }
        add_pieces(pair, unit, target, from, bytes, of_gpu(piece.lkey));
        from += bytes;
    }
    if (status == wc::success && from < header.length) status = wc::local_length;
    if (status == wc::success) return true;
    std::erase_if(pair.pieces, [&](const Piece& piece) { return piece.unit == unit.number; });
    QueueEntry made{unit.completion, &pair, 0, true};
    made.completion.status = status;
    push(fake(pair.receive_queue), made);
    refuse(pair, message, status == wc::local_length ? wc::remote_invalid_request : wc::remote_operation,
           verbs::event::qp_request_error);
    return false;
}

bool Engine::of_gpu(uint32_t key) const {
    const auto found = regions_.find(key);
    return found != regions_.end() && found->second->of_gpu;
}

// As a read by the device does.
void Engine::show_writes(const Device& by) {
    if (held_.empty()) return;
    ++World::get().flushes;
    std::erase_if(held_, [&](const HeldWrite& write) {
        if (write.by != &by) return false;
        memcpy(write.target, write.bytes.data(), write.bytes.size());
        return true;
    });
}

void Engine::add_pieces(Pair& pair, Unit& unit, std::byte* target, size_t from, size_t bytes, bool to_gpu) {
    // Up to eight pieces, as packets of a network that reorders them.
    const size_t part = World::get().reorder ? std::max<size_t>(64, (bytes / 8 + 63) / 64 * 64) : bytes;
    for (size_t place = 0; place < bytes; place += part) {
        const size_t size = std::min(part, bytes - place);
        pair.pieces.push_back({target + place, unit.data->data() + from + place, size, unit.number, to_gpu});
        ++unit.pieces;
    }
}

// `all`: everything lands now, and completes.
bool Engine::land(Pair& pair, int64_t now, bool all) {
    bool busy = false;
    for (;;) {
        while (!pair.units.empty() && pair.units.front().pieces == 0) {
            Unit& unit = pair.units.front();
            if (!all && unit.not_before_us > now) {
                sleep_until(unit.not_before_us, now);
                break;
            }
            finish(pair, unit);
            pair.units.pop_front();
            busy = true;
        }
        if (pair.pieces.empty()) return busy;
        if (!all && pair.land_after_us > now) {
            sleep_until(pair.land_after_us, now);
            return busy;
        }
        World& world = World::get();
        const bool in_order = all || !world.reorder;
        size_t count = in_order ? pair.pieces.size() : 1 + world.random(pair.pieces.size());
        for (; count > 0; --count) land_piece(pair, in_order ? 0 : world.random(std::min(window, pair.pieces.size())));
        busy = true;
        if (in_order) continue;
        // Other queue pairs have their turn. Sometimes a part is in memory much earlier than the rest.
        hold(pair, now);
        return busy;
    }
}

void Engine::hold(Pair& pair, int64_t now) {
    World& world = World::get();
    if (world.reorder && world.random(8) == 0)
        pair.land_after_us = now + int64_t(world.random(uint64_t(world.hold_us) + 1));
}

void Engine::land_piece(Pair& pair, size_t index) {
    // Of two writes to the same memory the later one stays.
    for (size_t i = 0; i < index; ++i)
        if (overlap(pair.pieces[i], pair.pieces[index])) index = i;
    if (index > 0) ++World::get().reordered;
    const Piece piece = pair.pieces[index];
    const auto place = uintptr_t(piece.target);
    if (place >= World::get().watch_begin && place < World::get().watch_end) World::get().landed += piece.bytes;
    if (piece.to_gpu && World::get().unflushed) {
        ++World::get().held;
        held_.push_back({fake(pair.context).of, piece.target, {piece.source, piece.source + piece.bytes}});
    } else {
        memcpy(piece.target, piece.source, piece.bytes);
    }
    pair.pieces.erase(pair.pieces.begin() + ptrdiff_t(index));
    --pair.units[piece.unit - pair.units.front().number].pieces;
}

void Engine::finish(Pair& pair, Unit& unit) {
    if (unit.completes) push(fake(pair.receive_queue), {unit.completion, &pair, 0, true});
    if (!unit.reads) return;
    show_writes(*fake(pair.context).of);
    Message response;
    response.header = unit.request.header;
    std::swap(response.header.source, response.header.target);
    response.header.kind = Kind::response;
    const Header& header = unit.request.header;
    auto data = std::make_shared<std::vector<std::byte>>();
    if (header.length > 0) {
        // The memory may have been released meanwhile.
        const std::byte* from =
            memory(pair, header.rkey & ~remote_key, header.address, header.length, verbs::access::remote_read);
        if (from == nullptr) return answer(pair, Kind::refused, header.sequence, wc::remote_access);
        data->assign(from, from + header.length);
    }
    response.header.bytes = uint32_t(data->size());
    response.payload = std::move(data);
    deliver(pair, response);
}

}  // namespace weft::internal::test::fake_ibverbs
