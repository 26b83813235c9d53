// pair.cpp: the exported functions for queue pairs, and the posting of requests.
#include <algorithm>
#include <cerrno>
#include <chrono>

#include "tests/verbs/fake/fake.hpp"

namespace weft::internal::test::fake_ibverbs {

namespace {

uint64_t bytes_of(const abi::Sge* pieces, int count) {
    uint64_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += pieces[i].length;
    return bytes;
}

// 0, or why a request cannot be posted.
int check_send(const Pair& pair, const abi::SendRequest& request) {
    if (fake(pair.context).of->removed) return EIO;
    if (pair.now != verbs::state::ready_to_send && pair.now != verbs::state::error) return EINVAL;
    if (request.num_sge < 0 || request.num_sge > int(pair.limits.max_send_sge)) return EINVAL;
    if (request.opcode < verbs::opcode::write || request.opcode > verbs::opcode::read) return EINVAL;
    if (pair.sends_used >= int(pair.limits.max_send_wr)) return ENOMEM;
    const bool inlined = request.send_flags & verbs::send_flag::inline_data;
    if (inlined && (request.opcode == verbs::opcode::read ||
                    bytes_of(request.sg_list, request.num_sge) > pair.limits.max_inline_data))
        return EINVAL;
    return 0;
}

SendEntry copied(const Pair& pair, const abi::SendRequest& request) {
    SendEntry entry;
    entry.id = request.wr_id;
    entry.opcode = request.opcode;
    entry.flags = request.send_flags | (pair.signal_all ? verbs::send_flag::signaled : 0);
    entry.imm = request.imm_data;
    entry.rkey = request.rkey;
    entry.address = request.remote_addr;
    entry.bytes = bytes_of(request.sg_list, request.num_sge);
    // The device copies inline data when it is posted, and reads other data later.
    if (request.send_flags & verbs::send_flag::inline_data) {
        entry.inlined = std::make_shared<std::vector<std::byte>>();
        for (int i = 0; i < request.num_sge; ++i) {
            const auto* from = reinterpret_cast<const std::byte*>(request.sg_list[i].addr);
            entry.inlined->insert(entry.inlined->end(), from, from + request.sg_list[i].length);
        }
    } else {
        entry.pieces.assign(request.sg_list, request.sg_list + request.num_sge);
        World& world = World::get();
        for (const abi::Sge& piece : entry.pieces)
            if (piece.addr >= world.watch_begin && piece.addr < world.watch_end) world.watched += piece.length;
    }
    return entry;
}

}  // namespace

int post_sends(abi::Pair* of, abi::SendRequest* first, abi::SendRequest** failed);
int post_receives(abi::Pair* of, abi::ReceiveRequest* first, abi::ReceiveRequest** failed);

int post_sends(abi::Pair* of, abi::SendRequest* first, abi::SendRequest** failed) {
    Pair& pair = fake(of);
    int error = 0;
    {
        std::lock_guard held(pair.lock);
        for (abi::SendRequest* request = first; request != nullptr; request = request->next) {
            error = World::get().failing("post_send");
            if (error == 0) error = check_send(pair, *request);
            if (error != 0) {
                *failed = request;
                break;
            }
            pair.posted.push_back(copied(pair, *request));
            ++pair.sends_used;
        }
    }
    Engine::get().notify();
    return error;
}

int post_receives(abi::Pair* of, abi::ReceiveRequest* first, abi::ReceiveRequest** failed) {
    Pair& pair = fake(of);
    int error = 0;
    {
        std::lock_guard held(pair.lock);
        for (abi::ReceiveRequest* request = first; request != nullptr; request = request->next) {
            error = World::get().failing("post_recv");
            if (error == 0 && fake(pair.context).of->removed) error = EIO;
            if (error == 0 && pair.now == verbs::state::reset) error = EINVAL;
            if (error == 0 && (request->num_sge < 0 || request->num_sge > int(pair.limits.max_recv_sge)))
                error = EINVAL;
            if (error == 0 && pair.receives_used >= int(pair.limits.max_recv_wr)) error = ENOMEM;
            if (error != 0) {
                *failed = request;
                break;
            }
            pair.receives.push_back({request->wr_id, {request->sg_list, request->sg_list + request->num_sge}});
            ++pair.receives_used;
        }
    }
    Engine::get().notify();
    return error;
}

}  // namespace weft::internal::test::fake_ibverbs

using namespace weft::internal::test::fake_ibverbs;
namespace verbs = weft::internal::verbs;

namespace {

std::atomic<int> pairs_made{0};
std::atomic<unsigned> turn{0};  // of ece_options
constexpr uint32_t ece_vendor = 0x77657f;

void drop_completions(Queue& queue, const Pair& pair) {
    std::lock_guard held(queue.lock);
    std::erase_if(queue.entries_held, [&](const QueueEntry& entry) { return entry.pair == &pair; });
    queue.count.store(queue.entries_held.size());
}

}  // namespace

extern "C" {

abi::Pair* ibv_create_qp(abi::Domain* domain, abi::PairInit* init) {
    World& world = World::get();
    int error = world.failing("ibv_create_qp");
    if (error == 0 && fake(domain->context).of->removed) error = EIO;
    if (error == 0 && (init->type != verbs::pair_type_rc || int(init->limits.max_inline_data) > world.max_inline ||
                       init->limits.max_send_wr > 8'192 || init->limits.max_recv_wr > 8'192))
        error = EINVAL;
    if (error == 0 && pairs_made >= world.max_qp) error = ENOMEM;
    if (error != 0) return errno = error, nullptr;
    auto* pair = new Pair;
    pair->context = domain->context;
    pair->user = init->user;
    pair->domain = domain;
    pair->send_queue = init->send_queue;
    pair->receive_queue = init->receive_queue;
    pair->type = init->type;
    pair->limits = init->limits;
    pair->signal_all = init->signal_all;
    pair->ece_own = turn.fetch_add(1) % 2 == 0 ? world.ece_first : world.ece_second;
    pair->qp_num = Engine::get().add(*pair);
    ++pairs_made;
    ++world.objects;
    return pair;
}
int ibv_destroy_qp(abi::Pair* of) {
    if (const int error = World::get().failing("ibv_destroy_qp")) return error;
    Pair& pair = fake(of);
    Engine::get().remove(pair);
    // Another thread may be about to acknowledge it.
    for (int turns = 0; pair.async_fetched != pair.async_acknowledged && turns < 5'000; ++turns)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (pair.async_fetched != pair.async_acknowledged)
        misuse("ibv_destroy_qp would wait for an unacknowledged asynchronous event");
    drop_completions(fake(pair.send_queue), pair);
    drop_completions(fake(pair.receive_queue), pair);
    Context& context = fake(pair.context);
    {
        std::lock_guard held(context.lock);
        std::erase_if(context.events, [&](const abi::AsyncEvent& event) {
            return event.type >= verbs::event::qp_fatal && event.type <= verbs::event::path_migration_error &&
                   event.element.pair == of;
        });
    }
    delete &pair;
    --pairs_made;
    --World::get().objects;
    return 0;
}
int ibv_modify_qp(abi::Pair* pair, abi::PairAttributes* attributes, int mask) {
    if (const int error = World::get().failing("ibv_modify_qp")) return error;
    return Engine::get().modify(fake(pair), *attributes, mask);
}
int ibv_query_qp(abi::Pair* pair, abi::PairAttributes* attributes, int, abi::PairInit* init) {
    if (const int error = World::get().failing("ibv_query_qp")) return error;
    *attributes = {};
    *init = {};
    attributes->state = fake(pair).now;
    attributes->limits = init->limits = fake(pair).limits;
    return 0;
}
int ibv_query_ece(abi::Pair* of, abi::Ece* ece) {
    const Pair& pair = fake(of);
    if (const int error = World::get().ece) return error;
    if (pair.ece_own < 0) return EOPNOTSUPP;
    const bool agreed = pair.now == verbs::state::ready_to_receive || pair.now == verbs::state::ready_to_send;
    *ece = {ece_vendor, agreed ? pair.ece_used : uint32_t(pair.ece_own), 0};
    return 0;
}
int ibv_set_ece(abi::Pair* of, abi::Ece* ece) {
    Pair& pair = fake(of);
    if (const int error = World::get().ece) return error;
    if (pair.ece_own < 0) return EOPNOTSUPP;
    if (ece->vendor != ece_vendor || ece->mask != 0) return EINVAL;
    if (pair.now != verbs::state::reset && pair.now != verbs::state::init) return EINVAL;
    pair.ece_wanted = ece->options;
    return 0;
}
}
