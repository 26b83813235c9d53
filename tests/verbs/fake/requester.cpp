// requester.cpp: the engine's sending half of a queue pair: sends requests in order, repeats lost ones, completes them.
#include "tests/verbs/fake/fake.hpp"

namespace weft::internal::test::fake_ibverbs {

namespace {

namespace wc = verbs::wc;

constexpr size_t flying_most = 64;
constexpr int64_t rnr_wait_us = 640;

int completed_opcode(int opcode) {
    if (opcode == verbs::opcode::read) return verbs::completed::read;
    return opcode == verbs::opcode::write || opcode == verbs::opcode::write_with_imm ? verbs::completed::write
                                                                                     : verbs::completed::send;
}

}  // namespace

bool Engine::send_some(Pair& pair, int64_t now) {
    if (pair.now != verbs::state::ready_to_send) return false;
    {
        std::lock_guard held(pair.lock);
        while (!pair.posted.empty() && pair.flying.size() < flying_most) {
            pair.flying.push_back(std::move(pair.posted.front()));
            pair.posted.pop_front();
            pair.flying.back().sequence = pair.next_sequence++;
        }
    }
    if (pair.sent == pair.flying.size()) return false;
    if (pair.wait_until_us > now) {
        sleep_until(pair.wait_until_us, now);
        return false;
    }
    const int down = World::get().down_status;
    if (down != 0 && !port_of(pair).up) {
        fail(pair, down);
        return true;
    }
    bool busy = false;
    while (pair.sent < pair.flying.size()) {
        SendEntry& entry = pair.flying[pair.sent];
        if (entry.message.payload == nullptr && !prepare(pair, entry)) {
            // Earlier requests end first.
            if (pair.sent > 0) break;
            fail(pair, wc::local_protection);
            return true;
        }
        ++fake(pair.context).of->requests;
        const uint64_t hole = port_of(pair).hole_bytes;
        const bool swallowed = hole != 0 && entry.bytes > hole;
        if (swallowed) ++World::get().lost;
        if (!World::get().loses_request() && !swallowed) deliver(pair, entry.message);
        if (pair.sent++ == 0) start_deadline(pair, now);
        busy = true;
    }
    return busy;
}

// Reads the data from the caller's memory: after the call that posted it.
bool Engine::prepare(Pair& pair, SendEntry& entry) {
    auto data = std::make_shared<std::vector<std::byte>>();
    if (entry.inlined) {
        data = entry.inlined;
    } else {
        const bool reads = entry.opcode == verbs::opcode::read;
        if (!reads) data->reserve(entry.bytes);
        for (const abi::Sge& piece : entry.pieces) {
            if (piece.length == 0) continue;
            const std::byte* from =
                memory(pair, piece.lkey, piece.addr, piece.length, reads ? verbs::access::local_write : 0);
            if (from == nullptr) return false;
            if (!reads && of_gpu(piece.lkey)) show_writes(*fake(pair.context).of);
            if (!reads) data->insert(data->end(), from, from + piece.length);
        }
    }
    Header& header = entry.message.header;
    header.bytes = uint32_t(data->size());
    header.kind = Kind::request;
    header.source = pair.qp_num;
    header.ece = pair.ece_used;
    header.target = pair.attributes.numbers.dest_qp_num;
    header.sequence = entry.sequence;
    header.opcode = entry.opcode;
    header.imm = entry.imm;
    header.rkey = entry.opcode == verbs::opcode::write ? World::get().key_of_put(entry.rkey) : entry.rkey;
    header.address = entry.address;
    header.length = entry.bytes;
    const abi::Address& address = pair.attributes.address[0];
    header.global = address.is_global;
    header.lid = address.dlid;
    memcpy(header.gid, address.grh.dgid, sizeof header.gid);
    entry.message.payload = std::move(data);
    return true;
}

void Engine::start_deadline(Pair& pair, int64_t now) {
    const int timeout = pair.attributes.times.timeout;
    pair.deadline_us = timeout == 0 ? INT64_MAX : now + std::max<int64_t>((4'096ll << timeout) / 1'000, 200);
}

bool Engine::check_deadline(Pair& pair, int64_t now) {
    if (pair.sent == 0 || pair.now != verbs::state::ready_to_send) return false;
    if (now < pair.deadline_us) {
        if (pair.deadline_us != INT64_MAX) sleep_until(pair.deadline_us, now);
        return false;
    }
    if (pair.retries++ >= pair.attributes.times.retry_cnt)
        fail(pair, wc::retry_exceeded);
    else
        go_back(pair, 0);
    return true;
}

void Engine::go_back(Pair& pair, int64_t not_before_us) {
    World::get().resent += pair.sent;
    pair.sent = 0;
    pair.wait_until_us = not_before_us;
}

// Whether the oldest request was sent. A late answer also counts while the request waits to be sent again: a peer that
// refused it does not answer a second time.
bool Engine::awaits_answer(const Pair& pair) {
    return !pair.flying.empty() && pair.flying.front().message.payload != nullptr;
}

void Engine::handle_answer(Pair& pair, const Message& message) {
    if (pair.now != verbs::state::ready_to_send) return;
    const Header& header = message.header;
    if (header.kind == Kind::acknowledge) {
        acknowledged(pair, header.sequence);
        return;
    }
    if (header.sequence > 0 && !acknowledged(pair, header.sequence - 1)) return;
    if (!awaits_answer(pair) || pair.flying.front().sequence != header.sequence) return;
    switch (header.kind) {
        case Kind::response: take_response(pair, message); break;
        case Kind::resend: go_back(pair, 0); break;
        case Kind::not_ready:
            ++World::get().rnr;
            if (pair.attributes.times.rnr_retry != 7 && pair.rnr_retries++ >= pair.attributes.times.rnr_retry)
                fail(pair, wc::rnr_retry_exceeded);
            else
                go_back(pair, now_us() + rnr_wait_us);
            break;
        case Kind::refused: fail(pair, header.status); break;
        default: break;
    }
}

// Completes the requests up to a sequence number. False: the queue pair failed. A read ends with its response only.
bool Engine::acknowledged(Pair& pair, uint64_t sequence) {
    while (awaits_answer(pair) && pair.flying.front().sequence <= sequence) {
        const SendEntry& entry = pair.flying.front();
        if (entry.opcode == verbs::opcode::read) break;
        if (const int status = World::get().completion_status()) return fail(pair, status), false;
        complete(pair, entry, wc::success);
        pair.rnr_retries = 0;
        end_first(pair);
    }
    return true;
}

void Engine::take_response(Pair& pair, const Message& message) {
    const SendEntry& entry = pair.flying.front();
    if (entry.opcode != verbs::opcode::read || message.payload->size() != entry.bytes) return;
    size_t from = 0;
    for (const abi::Sge& piece : entry.pieces) {
        std::byte* target = memory(pair, piece.lkey, piece.addr, piece.length, verbs::access::local_write);
        if (target == nullptr) return fail(pair, wc::local_protection);
        memcpy(target, message.payload->data() + from, piece.length);
        from += piece.length;
    }
    if (const int status = World::get().completion_status()) return fail(pair, status);
    complete(pair, entry, wc::success);
    end_first(pair);
}

void Engine::end_first(Pair& pair) {
    pair.flying.pop_front();
    if (pair.sent > 0) --pair.sent;
    pair.retries = 0;
    start_deadline(pair, now_us());
}

// Unsignaled requests keep their places until the caller takes a later completion.
void Engine::complete(Pair& pair, const SendEntry& entry, int status) {
    ++pair.unsignaled;
    if (status == wc::success && !(entry.flags & verbs::send_flag::signaled)) return;
    QueueEntry made{};
    made.completion.wr_id = entry.id;
    made.completion.status = status;
    made.completion.qp_num = pair.qp_num;
    // Of an error nothing else is valid.
    made.completion.opcode = status == wc::success ? completed_opcode(entry.opcode) : 0x5a5a;
    made.completion.byte_len = status == wc::success ? uint32_t(entry.bytes) : 0x5a5a5a5a;
    made.completion.vendor_err = status == wc::success ? 0 : 0x80u + uint32_t(status);
    made.pair = &pair;
    made.freed = std::exchange(pair.unsignaled, 0);
    push(fake(pair.send_queue), made);
}

// The oldest request has the status. All others are flushed.
void Engine::fail(Pair& pair, int status) {
    if (!pair.flying.empty()) {
        complete(pair, pair.flying.front(), status);
        pair.flying.pop_front();
    }
    flush(pair);
}

void Engine::flush(Pair& pair) {
    pair.now = verbs::state::error;
    land(pair, now_us(), true);
    for (const SendEntry& entry : pair.flying) complete(pair, entry, wc::flushed);
    pair.flying.clear();
    pair.sent = 0;
    std::lock_guard held(pair.lock);
    for (const SendEntry& entry : pair.posted) complete(pair, entry, wc::flushed);
    pair.posted.clear();
    for (const ReceiveEntry& entry : pair.receives) {
        QueueEntry made{};
        made.completion.wr_id = entry.id;
        made.completion.status = wc::flushed;
        made.completion.opcode = 0x5a5a;
        made.completion.qp_num = pair.qp_num;
        made.pair = &pair;
        made.receive = true;
        push(fake(pair.receive_queue), made);
    }
    pair.receives.clear();
}

}  // namespace weft::internal::test::fake_ibverbs
