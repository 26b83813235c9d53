#include "src/comm/device.hpp"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/bootstrap/roster.hpp"
#include "src/bootstrap/service.hpp"
#include "src/comm/device_abroad.hpp"
#include "src/comm/device_buffers.hpp"
#include "src/comm/device_failure.hpp"
#include "src/comm/device_messages.hpp"
#include "src/comm/device_plan.hpp"
#include "src/comm/plan_cache.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/executor/cuda/domain.hpp"
#include "src/executor/cuda/registrations.hpp"
#include "src/selector/selector.hpp"

namespace weft {

using namespace cuda;

namespace {

// While the host's threads sit in the driver: deaths are told within a second.
constexpr int64_t look_apart_us = 50'000;
// For what a rank of another host called: leaders tell twice a second.
constexpr int64_t call_patience_us = 2'000'000;

// A plan's kernel and arguments, but for the buffers.
struct PreparedLaunch {
    DevicePlan plan;
    const Kernel* kernel;
    LaunchShape shape;
    KernelArguments arguments;
    size_t send_bytes, receive_bytes;    // that this rank holds
    size_t send_begins, receive_begins;  // of steps: where in the whole
    bool lends_send, lends_receive;      // peers use it where it lies, if they may
};

}  // namespace

struct DeviceSide::State {
    const Driver* driver = nullptr;
    std::shared_ptr<const KernelSet> kernels;  // null: this rank has no device
    DeviceFacts facts{};
    std::string why_not;  // why device memory is not served; empty: it is, once begun

    std::shared_ptr<HostGroup> group;
    int rank = 0;
    int64_t deadline_us = 0;  // 0: none
    int64_t next_look_us = 0;
    std::unique_ptr<Domain> domain;
    std::shared_ptr<const Catalog> catalog;
    DeviceLayout layout;
    bool sharing = false;  // another rank of this process is on this device
    bool offers = false;   // the ranks reach each other's memory: large messages may stay where they are
    std::unique_ptr<Registrations> registrations;
    std::unique_ptr<DeviceAbroad> abroad;  // null: one host

    uint64_t timeout_ns = 0;
    PlansByKey<PreparedLaunch> plans;
    PreparedLaunch* prepared = nullptr;
    uint32_t launches = 0;
    StreamFacts stream;
    std::unique_ptr<DeviceMessages> messages;
    MessageArguments message_arguments{};
    std::unique_ptr<DeviceBuffers> buffers;
    KnownOperations known;

    std::shared_ptr<Service> service;
    uint64_t timer = 0;                 // of the service thread
    std::atomic<int64_t> failed_us{0};  // when a failure was seen that news may explain better; 0: none
    GonePartners gone_partners;         // the service thread's
    bool accused = false;               // likewise: somebody, at the last look

    int device() const { return facts.ordinal; }
    void decline(std::string why) {
        why_not = std::move(why);
        registrations.reset();
        abroad.reset();
        if (domain) Domain::retire(std::move(domain));
    }
    void look_again() {
        timer = service->after(look_apart_us, [this] {
            look(true, false);
            look_again();
        });
    }
    void look(bool at_others, bool may_wait);
    Status check_others(const std::vector<int>& missing);
    bool await_news(const DeviceObserver& observer, bool may_wait);
    Result<PreparedLaunch*> plan(const Operation& operation);
    void offer(PreparedLaunch& it, const DeviceCall& call) const;
    Status take_stream(void* stream_of_call);
    DeviceMessages& own_messages();
    // Where kernels of `peer` find what is sent; null: they do not.
    const std::byte* lent(const DeviceMessage& message, int peer) const;
    Status enqueue(const Kernel& kernel, const LaunchShape& shape, CUstream on, void* arguments) const;
    // A kernel that the proxy serves, where there is one. Arguments: of collectives or of messages.
    template <class Arguments>
    Status enqueue_served(const Kernel& kernel, const LaunchShape& shape, CUstream on, Arguments& arguments) const;
    // The context is current.
    Result<std::optional<int>> priority(int asked);
    std::optional<std::pair<int, int>> priorities;  // the device's lowest and highest number, once asked for
};

DeviceSide::DeviceSide(std::unique_ptr<State> state) : state_(std::move(state)) {}

DeviceSide::~DeviceSide() {
    State& s = *state_;
    // Peers may die while we wait for our kernels: they are watched until those have ended.
    if (s.domain) s.domain->finish();
    if (s.abroad) (void)s.abroad->drain(s.timeout_ns > 0 ? now_us() + int64_t(s.timeout_ns / 1000) : 0);
    if (s.service) s.service->run([&] { s.service->cancel(s.timer); });
    s.abroad.reset();
    s.registrations.reset();  // before we say that we have unmapped what is others'
    if (s.domain)
        Domain::retire(std::move(s.domain));
    else if (s.group)
        s.group->row(s.rank).device_left.store(1, std::memory_order_release);
    if (s.group && !s.group->one_host()) s.group->ring();  // the leader may be waiting for it
}

Result<std::unique_ptr<DeviceSide>> DeviceSide::find(int which) {
    if (which < 0 && !Driver::in_use()) return std::unique_ptr<DeviceSide>();
    auto driver = Driver::get();
    if (!driver) {
        if (which >= 0) return driver.take_status();
        WEFT_LOG(info, init, "no device: {}", driver.status().sentence());
        return std::unique_ptr<DeviceSide>();
    }
    auto state = std::make_unique<State>();
    state->driver = *driver;
    const auto made = [&] { return std::unique_ptr<DeviceSide>(new DeviceSide(std::move(state))); };
    CUcontext context = nullptr;
    if (which == current) {
        WEFT_TRY((*driver)->check((*driver)->CtxGetCurrent(&context), "tell the current context"));
        if (context != nullptr) {
            CUdevice device = 0;
            WEFT_TRY((*driver)->check((*driver)->CtxGetDevice(&device), "tell the device of the current context"));
            which = device;
        }
    } else if (which >= 0) {
        auto count = device_count(**driver);
        if (!count) return count.take_status();
        if (which >= *count)
            return fail(weftInvalidArgument, "device {} does not exist: there are {}, from 0 on", which, *count);
    }
    if (which < 0) {
        state->why_not =
            "no device belongs to this communicator: one must be current in the thread that calls weftCommInitRank "
            "(cudaSetDevice, cuCtxSetCurrent)";
        return made();
    }
    state->facts.ordinal = which;
    state->facts.use = DeviceFacts::refused;
    auto kernels = KernelSet::of_device(**driver, which);
    if (!kernels) {
        state->why_not = kernels.status().sentence();
    } else if (context != nullptr && context != (*kernels)->context().handle()) {
        state->why_not = fmt::format(
            "the context that was current is not device {}'s primary one, which cudaSetDevice makes current", which);
    } else {
        state->kernels = std::move(*kernels);
        state->facts = state->kernels->facts();
    }
    if (!state->why_not.empty()) WEFT_LOG(warn, init, "device {} is not used: {}", which, state->why_not);
    return made();
}

DeviceFacts DeviceSide::facts() const { return state_->facts; }

void DeviceSide::finish() const {
    if (state_->domain) state_->domain->finish();
}

// All ranks decide alike: from what the rows say, or each that it has no device.
void DeviceSide::meet(std::shared_ptr<HostGroup> group, const net::Identity* identity, int rank, int64_t timeout_ms,
                      std::shared_ptr<const Catalog> catalog) {
    State& s = *state_;
    s.group = std::move(group);
    s.rank = rank;
    s.deadline_us = timeout_ms > 0 ? now_us() + timeout_ms * 1000 : 0;
    if (!s.why_not.empty()) return;
    const int ranks = s.group->ranks();
    if (ranks > Domain::ranks_max)
        return s.decline(fmt::format("the communicator has {} ranks: this version serves device memory of up to {}",
                                     ranks, Domain::ranks_max));
    std::vector<DeviceFacts> facts;
    for (int other = 0; other < ranks; ++other) {
        const RankRow& row = s.group->row(other);
        facts.push_back(row.device);
        if (row.device.use == DeviceFacts::none)
            return s.decline(
                fmt::format("rank {} joined without a device: it must be current in the thread that calls "
                            "weftCommInitRank, on every rank",
                            other));
        if (row.device.use == DeviceFacts::refused)
            return s.decline(fmt::format("rank {} cannot use its device: its log says why", other));
        // A process may be several hosts, as it likes; whoever has the same device is on the same machine.
        const bool here =
            s.group->local(other) ? row.process == s.group->row(rank).process : s.group->home(other).pid == getpid();
        s.sharing |=
            other != rank && here && std::equal(std::begin(row.device.uuid), std::end(row.device.uuid), s.facts.uuid);
    }
    const AgreedOptions& agreed = s.group->header().agreed;
    s.layout = {ranks, blocks_together(facts), agreed.algo};
    const Layout layout = layout_of(*s.group, 0);
    s.layout.hosts = layout.host_count();
    if (s.layout.blocks_max < 1)
        return s.decline("the ranks that share a device are too many for it: their kernels must run at once");
    s.catalog = std::move(catalog);
    for (const Collective collective : all_collectives)
        if (!list_concerns(NameList(s.layout.algo), collective, layout, s.catalog->rows()))
            s.layout.unbound.insert(collective);
    StepAlgorithms steps =
        step_algorithms({.rows = s.catalog->rows(),
                         .own = [&](Collective collective) { return needs_steps(s.layout, collective); },
                         .algo = s.layout.algo,
                         .channels = int(agreed.channels),
                         .blocks_max = s.layout.blocks_max,
                         .link_mbps = s.group->header().facts.link_mbps,
                         .deterministic = agreed.deterministic != 0},
                        layout, rank);
    s.layout.steps = std::move(steps.rows);
    s.layout.excluded = std::move(steps.excluded);
    s.layout.tile_bytes = size_t(agreed.tile_bytes);
    Connections connections = std::move(steps.connections);
    if (ranks <= ranks_max && s.layout.hosts == 1)
        s.registrations = std::make_unique<Registrations>(s.group, rank, s.kernels);
    s.domain = std::make_unique<Domain>(s.group, rank, s.kernels, std::move(connections));
    if (s.layout.hosts == 1) return;
    s.abroad = std::make_unique<DeviceAbroad>(s.group, *identity, rank, s.domain->abroad_ends());
    // Others hear of it as of any other obstacle.
    if (const Status listening = s.abroad->listen(); !listening) s.domain->object(listening);
}

Result<bool> DeviceSide::advance() {
    State& s = *state_;
    if (!s.domain) return true;
    auto known = s.domain->advance();
    if (!known) return known.take_status();
    if (!*known) {
        WEFT_TRY(s.check_others(s.domain->missing()));
        return false;
    }
    if (const std::string obstacle = s.domain->obstacle(); !obstacle.empty()) s.decline(obstacle);
    if (!s.abroad) return true;
    auto connected = s.abroad->connect();
    if (connected && !*connected) WEFT_TRY(s.check_others(s.abroad->missing()));
    return connected;
}

Status DeviceSide::State::check_others(const std::vector<int>& missing) {
    const int64_t now = now_us();
    if (group->aborted()) return group->abort_status();
    if (now < next_look_us) return ok();
    next_look_us = now + 20'000;
    for (const int other : missing)
        if (!group->alive(other))
            return fail(weftRemoteError, "{} died while the ranks were joining their devices", group->name_of(other));
    if (deadline_us > 0 && now > deadline_us)
        return fail(weftTimeout,
                    "rank {} waited for {} to join their devices until the deadline (WEFT_INIT_TIMEOUT_MS)", rank,
                    ranks_text(missing));
    return ok();
}

Status DeviceSide::begin(int64_t timeout_ms) {
    State& s = *state_;
    s.buffers = std::make_unique<DeviceBuffers>(*s.driver, s.kernels ? &s.kernels->context() : nullptr, s.rank);
    if (!s.domain) {
        if (s.group && s.kernels && s.rank == 0)
            WEFT_LOG_RANK(s.rank, info, init, "device memory is not served: {}", s.why_not);
        return ok();
    }
    s.timeout_ns = uint64_t(std::min(timeout_ms, INT64_MAX / 1'000'000)) * 1'000'000;
    s.offers = s.registrations && s.domain->detour().empty();
    if (s.offers) s.registrations->open();
    if (s.abroad) WEFT_TRY(s.abroad->begin(s.domain->abroad_ends(), s.domain->ended()));
    WEFT_LOG_RANK(s.rank, info, init, "serves memory of device {}, {} blocks of a kernel at most{}{}", s.device(),
                  s.layout.blocks_max, s.sharing ? ", which it shares with ranks of this process" : "",
                  s.domain->detour().empty() ? "" : ", through host memory");
    if (s.group->ranks() == 1) return ok();
    // Somebody must see deaths and kernels' failures while the rank's thread waits in the driver, or is elsewhere.
    auto service = Service::of_process();
    if (!service) return service.take_status();
    s.service = std::move(*service);
    s.service->run([&] { s.look_again(); });
    return ok();
}

Result<DevicePlace> DeviceSide::place(const DeviceSpan& send, const DeviceSpan& receive, const void* stream) {
    const State& s = *state_;
    return s.buffers->place(send, receive, stream != nullptr, s.why_not);
}

Result<uint64_t> DeviceSide::room(const char* name, const DeviceSpan& span) {
    return state_->buffers->room(name, span, state_->why_not);
}

// A new key: nothing here calls the driver, so it may happen during a capture.
Result<PreparedLaunch*> DeviceSide::State::plan(const Operation& operation) {
    auto plan = plan_on_device(operation, layout);
    if (!plan) return plan.take_status();
    auto fresh = std::make_unique<PreparedLaunch>();
    fresh->plan = *plan;
    fresh->kernel = &kernels->kernel(plan->body, element_of(operation), adds(weftRedOp_t(operation.op)));
    fresh->shape = {.blocks = unsigned(plan->blocks),
                    .threads = unsigned(plan->threads),
                    .remote_sync_domain = kernels->sync_domains()};
    KernelArguments& a = fresh->arguments;
    domain->bind(a);
    a.fingerprint = plan->fingerprint();
    bind_operation(a, operation, layout.ranks);
    const int parts = parts_of(operation.collective, layout.ranks);
    const Held in = input_of(operation.collective, rank, operation.root),
               out = output_of(operation.collective, rank, operation.root);
    const bool steps = plan->steps >= 0;
    fresh->send_bytes = a.bytes * size_t(parts_held(in, parts));
    fresh->receive_bytes = a.bytes * size_t(parts_held(out, parts));
    fresh->send_begins = steps ? first_held(in, rank, a.bytes) : 0;
    fresh->receive_begins = steps ? first_held(out, rank, a.bytes) : 0;
    // In what is read where it lies, each taker's part is one of a tile.
    a.tile_bytes = steps ? plan->tile_bytes : 0;
    if (plan->body == Body::peer_two_shot) a.tile_bytes = Domain::staging_bytes;
    if (plan->body == Body::peer_one_shot)
        a.tile_bytes = Domain::staging_bytes / size_t(a.give_stride ? layout.ranks : 1) / 64 * 64;
    fresh->lends_send = in != Held::nothing;
    fresh->lends_receive = out != Held::nothing && plan->body == Body::peer_two_shot;
    if (steps) domain->bind_program(a, layout.steps[size_t(plan->steps)].program(operation.root));
    a.offers = plan->staged() && offers && !a.scaled;
    a.timeout_ns = timeout_ns;
    known.add(plan->operation);
    if (rank == 0) WEFT_LOG_RANK(rank, info, algo, "{}: {}", plan->operation.text(), plan->text());
    return plans.insert(PlanKey(operation), std::move(fresh));
}

// What a call may be refused for.
Status DeviceSide::State::take_stream(void* stream_of_call) {
    const auto on = static_cast<CUstream>(stream_of_call);
    ContextScope scope(kernels->context());
    WEFT_TRY(scope.take_status());
    auto facts = describe_stream(*driver, on);
    if (!facts) return facts.take_status();
    if (facts->context != kernels->context().handle())
        return fail(weftInvalidArgument,
                    "the stream belongs to {}device {}, the communicator's rank {} is on device {}: make it with that "
                    "device current",
                    facts->device == device() ? "another context of " : "", facts->device, rank, device());
    if (sharing && (on == nullptr || on == CU_STREAM_LEGACY))
        return fail(
            weftInvalidUsage,
            "the legacy stream cannot be used where several ranks of a process share device {}: each would wait "
            "for the other; give each a stream of its own, made with cudaStreamNonBlocking",
            device());
    stream = *facts;
    return ok();
}

Status DeviceSide::prepare(const DeviceCall& call) {
    State& s = *state_;
    WEFT_TRY(s.take_stream(call.stream));
    // Of calls of all ranks alone: others are not counted alike.
    if (s.sharing) WEFT_TRY(s.domain->claim(static_cast<CUstream>(call.stream)));
    s.prepared = s.plans.find(PlanKey(call.operation));
    if (!s.prepared) [[unlikely]] {
        auto plan = s.plan(call.operation);
        if (!plan) return plan.take_status();
        s.prepared = *plan;
    }
    return ok();
}

// All or nothing: a peer that finds one address uses both. Where it needs none, what it finds is never looked at.
void DeviceSide::State::offer(PreparedLaunch& it, const DeviceCall& call) const {
    KernelArguments& a = it.arguments;
    std::byte *send[ranks_max], *receive[ranks_max];
    std::fill(std::begin(send), std::end(send), a.outputs[rank]);
    std::fill(std::begin(receive), std::end(receive), a.outputs[rank]);
    const bool all = (!it.lends_send || registrations->find(call.send, it.send_bytes, call.mapped, send)) &&
                     (!it.lends_receive || registrations->find(call.receive, it.receive_bytes, call.mapped, receive));
    if (all) WEFT_LOG_RANK(rank, trace, coll, "offers its buffers of launch {} in place", launches);
    for (int peer = 0; peer < layout.ranks; ++peer) {
        a.offered_send[peer] = all ? send[peer] : nullptr;
        a.offered_receive[peer] = all ? receive[peer] : nullptr;
    }
}

const Operation& DeviceSide::prepared() const { return state_->prepared->plan.operation; }

Status DeviceSide::launch(const DeviceCall& call) {
    State& s = *state_;
    PreparedLaunch& it = *s.prepared;
    KernelArguments& a = it.arguments;
    a.send = static_cast<const std::byte*>(call.send) - it.send_begins;
    a.receive = static_cast<std::byte*>(call.receive) - it.receive_begins;
    a.launch = ++s.launches;
    if (a.offers) s.offer(it, call);
    a.scalar_pointer = a.scaled && call.scalar_on_device ? call.scalar : nullptr;
    if (a.scaled && !a.scalar_pointer) __builtin_memcpy(&a.scalar, call.scalar, datatype_bytes[call.operation.type]);
    const auto stream = static_cast<CUstream>(call.stream);
    ContextScope scope(s.kernels->context());
    WEFT_TRY(scope.take_status());
    auto priority = s.priority(call.priority);
    if (!priority) return priority.take_status();
    WEFT_TRY(s.domain->order(stream, s.stream));
    LaunchShape shape = it.shape;
    shape.priority = *priority;
    WEFT_TRY(s.enqueue_served(*it.kernel, shape, stream, a));
    return s.domain->note(stream, s.stream);
}

Status DeviceSide::State::enqueue(const Kernel& kernel, const LaunchShape& shape, CUstream on, void* arguments) const {
    void* parameters[] = {arguments};
    const CUresult result = kernel.enqueue(shape, on, parameters);
    if (result == CUDA_SUCCESS) [[likely]]
        return ok();
    return driver->failure(result, fmt::format("launch the kernel {} with {} blocks of {} threads", kernel.name(),
                                               shape.blocks, shape.threads));
}

template <class Arguments>
Status DeviceSide::State::enqueue_served(const Kernel& kernel, const LaunchShape& shape, CUstream on,
                                         Arguments& arguments) const {
    if (abroad) abroad->launching(stream.capturing, arguments.launch, shape.blocks);
    // A replay would say again that an old launch has ended.
    uint32_t* const ended = arguments.ended;
    if (stream.capturing) arguments.ended = nullptr;
    Status enqueued = enqueue(kernel, shape, on, &arguments);
    arguments.ended = ended;
    WEFT_TRY(std::move(enqueued));
    if (abroad) abroad->launched();
    return ok();
}

DeviceMessages& DeviceSide::State::own_messages() {
    if (!messages) [[unlikely]] {
        domain->bind(message_arguments);
        messages = std::make_unique<DeviceMessages>(rank, layout.ranks, message_arguments.abroad);
        message_arguments.timeout_ns = timeout_ns;
    }
    return *messages;
}

const std::byte* DeviceSide::State::lent(const DeviceMessage& message, int peer) const {
    std::byte* at[ranks_max];
    const size_t bytes = message.count * size_of(message.type);
    return offers && registrations->find(message.data, bytes, message.mapped, at) ? at[peer] : nullptr;
}

Status DeviceSide::prepare_messages(std::span<const DeviceMessage> messages, void* stream) {
    State& s = *state_;
    WEFT_TRY(s.own_messages().arrange(messages,
                                      [&](const DeviceMessage& message, int peer) { return s.lent(message, peer); }));
    return s.take_stream(stream);
}

Status DeviceSide::prepare_messages(const CountedMessages& messages, void* stream) {
    State& s = *state_;
    s.own_messages().arrange(messages, [&](const DeviceMessage& message, int peer) { return s.lent(message, peer); });
    return s.take_stream(stream);
}

Result<std::optional<int>> DeviceSide::State::priority(int asked) {
    if (asked == WEFT_CONFIG_UNDEF_INT) [[likely]]
        return std::optional<int>();
    if (!priorities) {
        int last = 0, first = 0;
        WEFT_TRY(driver->check(driver->CtxGetStreamPriorityRange(&last, &first), "tell the range of priorities"));
        priorities = {first, last};
    }
    return std::optional<int>(std::clamp(asked, priorities->first, priorities->second));
}

Status DeviceSide::launch_messages(void* on, int asked_priority) {
    State& s = *state_;
    MessageArguments& a = s.message_arguments;
    a.launch = ++s.launches;
    const auto stream = static_cast<CUstream>(on);
    ContextScope scope(s.kernels->context());
    WEFT_TRY(scope.take_status());
    auto priority = s.priority(asked_priority);
    if (!priority) return priority.take_status();
    WEFT_TRY(s.domain->order(stream, s.stream));
    if (s.messages->lanes() == 0) return ok();
    const Kernel& kernel = s.kernels->messages();
    const LaunchShape noting{.blocks = 1, .threads = 128, .priority = *priority};
    if (s.messages->counted()) {
        s.messages->bind_counts(a);
        WEFT_TRY(s.enqueue(kernel, noting, stream, &a));
        a.launch = ++s.launches;
    }
    for (int noted = 0; !s.messages->fit() && noted < s.messages->items();) {
        noted += s.messages->note(a, noted);
        WEFT_TRY(s.enqueue(kernel, noting, stream, &a));
    }
    s.messages->bind(a);
    const LaunchShape shape{.blocks = unsigned(std::clamp(s.messages->lanes(), 1, s.layout.blocks_max)),
                            .threads = unsigned(threads_max),
                            .remote_sync_domain = s.kernels->sync_domains(),
                            .priority = *priority};
    WEFT_TRY(s.enqueue_served(kernel, shape, stream, a));
    return s.domain->note(stream, s.stream);
}

void DeviceSide::look(bool may_wait) const {
    if (state_->domain && state_->domain->failure() != cuda::Failure::none) [[unlikely]]
        state_->look(false, may_wait);
}

// What a rank of another host called may not be known here yet. False: it may still come. The service thread, which
// would bring it, may not wait.
bool DeviceSide::State::await_news(const DeviceObserver& observer, bool may_wait) {
    if (!abroad || domain->message_report().valid || observer.informed(domain->report())) return true;
    int64_t since_us = 0;
    if (const int64_t now = now_us(); failed_us.compare_exchange_strong(since_us, now)) since_us = now;
    for (;; usleep(1000)) {
        if (group->aborted() || now_us() - since_us > call_patience_us || observer.informed(domain->report()))
            return true;
        abroad->news().ask();
        if (!may_wait) return false;
    }
}

void DeviceSide::State::look(bool at_others, bool may_wait) try {
    if (at_others && registrations) registrations->look();
    if (group->aborted()) return;
    const DeviceObserver observer{*group, rank, known, timeout_ns / 1'000'000};
    Status found;
    if (domain->failure() != cuda::Failure::none) {
        if (!await_news(observer, may_wait)) return;
        found = observer.explain(domain->report(), domain->message_report());
    } else if (at_others) {
        // Who is on another host may have done all that it owes us, and its last messages be on their way.
        const int64_t stuck_us = abroad ? abroad->stuck_us() : 0;
        found = observer.look_at_others([&](int other, bool died) {
            if (group->local(other)) return domain->captured() || domain->working();
            return stuck_us > 0 && (!died || stuck_us >= RemoteNews::settled_us);
        });
        // What it had still sent may have come since; what we wait for may be another's, who is on the way.
        const bool accusing = !found;
        if (accusing && !accused) found = ok();
        accused = accusing;
        if (!accusing && abroad) found = abroad->trouble();
        if (!accusing && found) found = gone_partners.look(*group, rank, domain->stuck(), stuck_us);
    }
    if (found || !group->raise(found.code(), rank, found.sentence())) return;
    WEFT_LOG_RANK(rank, warn, coll, "{}", found.sentence());
} catch (const std::bad_alloc&) {
    group->raise(weftSystemError, rank, "a rank ran out of memory while it looked after its device");
}

std::string DeviceSide::explain(const Operation& operation) const {
    const State& s = *state_;
    if (!s.why_not.empty()) return fmt::format("\nin device memory: not served, for {}", s.why_not);
    const auto plan = plan_on_device(operation, s.layout);
    if (!plan) return fmt::format("\nin device memory: {}", plan.status().sentence());
    return fmt::format("\nin device memory: {}{}{}, by {} that Weft has not measured on a GPU", plan->text(),
                       s.domain->detour().empty() ? "" : ", through host memory",
                       !plan->staged() ? ""
                       : s.offers && !operation.scales()
                           ? ", in place where all buffers are of cudaMalloc and, if other processes have ranks, "
                             "registered, else staged"
                           : ", staged",
                       plan->steps >= 0 ? "predicted time, with costs" : "size, with thresholds");
}

std::optional<int> DeviceSide::register_buffer(const void* address, size_t bytes) {
    State& s = *state_;
    if (!s.kernels) return {};
    const ContextScope scope(s.kernels->context());
    const RelaxedCapture relaxed(*s.driver);
    const auto facts = describe_pointer(*s.driver, address);
    if (facts && !facts->on_device()) return {};
    if (!facts) WEFT_LOG_RANK(s.rank, info, mem, "cannot register {}: {}", address, facts.status().sentence());
    if (!facts) return no_entry;
    if (!s.offers || bytes == 0) return no_entry;
    const auto entry = s.registrations->add(address, bytes);
    if (entry) return *entry;
    WEFT_LOG_RANK(s.rank, info, mem, "{} bytes of device memory at {} are not mapped by others: {}", bytes, address,
                  entry.status().sentence());
    return no_entry;
}

Status DeviceSide::deregister_buffer(int entry) {
    // Kernels of ours that have ended have met their peers' behind the last access.
    state_->domain->finish();
    return state_->registrations->remove(entry);
}

uint64_t DeviceSide::device_bytes() const { return state_->domain ? state_->domain->device_bytes() : 0; }

}  // namespace weft
