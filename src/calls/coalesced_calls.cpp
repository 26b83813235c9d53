#include "src/calls/coalesced_calls.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "src/base/arithmetic.hpp"

namespace weft::internal {

namespace {

// Above this size the bytes dominate, and coalescing copies them twice more.
constexpr size_t small_bytes = 16 << 10;

// The values that a rank contributes to the extra element.
// The result is `fine` unless some rank contributes `objection`.
struct Votes {
    int fine, objection;
};
// Integers of one byte wrap, and the objections of many ranks must not add up to `fine`.
std::optional<Votes> votes(const Operation& operation, int ranks) {
    const bool adds = operation.op == weftSum || operation.op == weftAvg;
    if (adds && datatype_bytes[operation.type] == 1 && is_integer(weftDataType_t(operation.type)) &&
        ranks * ranks > INT8_MAX)
        return std::nullopt;
    switch (operation.op) {
        case weftSum:
        case weftMax: return Votes{0, 1};
        case weftProd:
        case weftMin: return Votes{1, 0};
        case weftBand: return Votes{1, 0};
        case weftBor: return Votes{0, 1};
        case weftAvg:
            return Votes{0, ranks};  // one objection divided by the number of ranks is 1
        // Two objections cancel each other in an exclusive or. A user's reduction belongs to one rank, so it is no agreed
        // fact whether two calls use the same one.
        default: return std::nullopt;
    }
}

void write_vote(std::byte* place, weftDataType_t type, int vote) {
    with_datatype(type, [&](auto constant) {
        using A = Arithmetic<decltype(constant)::value>;
        const typename A::Element element = A::round(typename A::Accumulator(vote));
        memcpy(place, &element, sizeof element);
    });
}

bool is_on_device(const QueuedCall& queued) { return queued.call.space == Space::device; }

// Only collectives are coalesced.
const CollectiveCall& collective_of(const QueuedCall& queued) { return std::get<CollectiveCall>(queued.call.kind); }
const Operation& operation_of(const QueuedCall& queued) { return collective_of(queued).operation; }

bool can_join(const QueuedCall& queued) {
    const auto* collective = std::get_if<CollectiveCall>(&queued.call.kind);
    if (queued.async_operation || !collective || queued.call.copied) return false;
    const Operation& operation = collective->operation;
    if (operation.collective != Collective::all_reduce || operation.count == 0 || operation.bytes() > small_bytes)
        return false;
    if (is_on_device(queued))
        return !operation.scales() && queued.communicator().context().device->collectives().joins();
    return votes(operation, queued.communicator().ranks()).has_value();
}

bool alike(const QueuedCall& first, const QueuedCall& second) {
    const Call &one = first.call, &other = second.call;
    if (operation_of(first).type != operation_of(second).type || operation_of(first).op != operation_of(second).op ||
        one.space != other.space || one.settings.preference != other.settings.preference)
        return false;
    return one.space == Space::host ||
           (one.stream == other.stream && one.settings.timeout_ms == other.settings.timeout_ms &&
            one.settings.priority == other.settings.priority);
}

// The most calls of one kernel; its table has room for more.
constexpr size_t most_on_device = 1024;
// A kernel of its own writes the table, so two calls would still be two kernels.
constexpr size_t least_on_device = 3;

// The largest call of a group that is coalesced with others.
size_t join_bytes(Communicator& communicator) { return size_t(communicator.context().planner.agreed().join_bytes); }

struct Range {
    uintptr_t begin, end, furthest;  // furthest: end of this and all before it
    size_t call;
};

}  // namespace

CoalescedCalls::~CoalescedCalls() = default;

void CoalescedCalls::apply(CallQueue& queue, bool on_device_too) {
    if (queue.size() < 2 || join_bytes(queue.front().communicator()) == 0) return;
    std::vector<QueuedCall> calls = queue.take();
    try {
        queue.put(coalesce(calls, on_device_too));
    } catch (...) {
        queue.put(std::move(calls));  // the remaining calls say which statuses to mark
        throw;
    }
}

std::vector<QueuedCall> CoalescedCalls::coalesce(std::vector<QueuedCall>& calls, bool on_device_too) {
    Communicator& communicator = calls[0].communicator();
    std::vector<QueuedCall> result;
    for (size_t begin = 0, end = 0; begin < calls.size(); begin = end) {
        size_t bytes = 0;
        end = begin;
        const bool on_device = is_on_device(calls[begin]);
        const bool pays = on_device ? on_device_too : communicator.ranks() > 1;
        const size_t most_bytes = pays ? join_bytes(communicator) : 0, most = on_device ? most_on_device : SIZE_MAX;
        while (end < calls.size() && end - begin < most && can_join(calls[end]) && alike(calls[begin], calls[end]) &&
               bytes + operation_of(calls[end]).bytes() <= most_bytes)
            bytes += operation_of(calls[end++]).bytes();
        if (end - begin < (on_device ? least_on_device : 2)) {
            end = begin + 1;
            result.push_back(std::move(calls[begin]));
            continue;
        }
        auto coalesced = std::make_shared<CoalescedCalls>();
        if (on_device) {
            coalesced->calls_.assign(calls.begin() + ptrdiff_t(begin), calls.begin() + ptrdiff_t(end));
            if (coalesced->apart()) {
                result.push_back(calls[begin]);
                result.back().coalesced = std::move(coalesced);
            } else {
                std::move(calls.begin() + ptrdiff_t(begin), calls.begin() + ptrdiff_t(end), std::back_inserter(result));
            }
            continue;
        }
        QueuedCall& whole = result.emplace_back(calls[begin]);
        Operation& operation = std::get<CollectiveCall>(whole.call.kind).operation;
        const size_t element = datatype_bytes[operation.type];
        uint64_t hash = 0xcbf29ce484222325u;
        for (size_t i = begin; i < end; ++i) {
            hash = (hash ^ operation_of(calls[i]).count) * 0xbf58476d1ce4e5b9u;
            hash ^= hash >> 29;
            // The first deadline that passes is that of all.
            whole.call.settings.timeout_ms = whole.communicator().context().earlier(whole.call.settings.timeout_ms,
                                                                                    calls[i].call.settings.timeout_ms);
        }
        coalesced->bytes_ = bytes + element;
        operation.count = bytes / element + 1;
        operation.coalesced =
            uint64_t(end - begin) << Operation::coalesced_shift | hash % (uint64_t(1) << Operation::coalesced_shift);
        if (end - begin == calls.size()) {
            coalesced->calls_.swap(calls);
        } else {
            coalesced->calls_.assign(std::move_iterator(calls.begin() + ptrdiff_t(begin)),
                                     std::move_iterator(calls.begin() + ptrdiff_t(end)));
        }
        whole.coalesced = std::move(coalesced);
    }
    return result;
}

namespace {

std::vector<Range> written_by(const std::vector<QueuedCall>& calls) {
    std::vector<Range> written;
    written.reserve(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
        const auto begin = reinterpret_cast<uintptr_t>(collective_of(calls[i]).receive);
        written.push_back({begin, begin + operation_of(calls[i]).bytes(), 0, i});
    }
    const auto earlier = [](const Range& a, const Range& b) { return a.begin < b.begin; };
    if (!std::is_sorted(written.begin(), written.end(), earlier)) std::sort(written.begin(), written.end(), earlier);
    return written;
}

}  // namespace

// No call reads the output of another call. (Reading the output of a later call would be allowed, but is rare.)
bool CoalescedCalls::in_order() const {
    std::vector<Range> written = written_by(calls_);
    uintptr_t furthest = 0;
    for (Range& range : written) range.furthest = furthest = std::max(furthest, range.end);
    for (size_t i = 0; i < calls_.size(); ++i) {
        const auto begin = reinterpret_cast<uintptr_t>(collective_of(calls_[i]).send),
                   end = begin + operation_of(calls_[i]).bytes();
        if (end <= written.front().begin || begin >= furthest) continue;  // common: inputs lie beside all outputs
        auto after = std::lower_bound(written.begin(), written.end(), end,
                                      [](const Range& range, uintptr_t limit) { return range.begin < limit; });
        while (after != written.begin() && (--after)->furthest > begin)
            if (after->end > begin && after->call != i) return false;
    }
    return true;
}

// As in_order(), and no two calls write the same memory.
bool CoalescedCalls::apart() const {
    const std::vector<Range> written = written_by(calls_);
    for (size_t i = 1; i < written.size(); ++i)
        if (written[i].begin < written[i - 1].end) return false;
    return in_order();
}

bool CoalescedCalls::on_device() const { return is_on_device(calls_[0]); }

Status CoalescedCalls::begin_on_device() {
    std::vector<Call> calls;
    for (const QueuedCall& queued : calls_) calls.push_back(queued.call);
    return calls_[0].communicator().begin_coalesced(calls);
}

void CoalescedCalls::gather(Call& call) {
    coalesced_ = calls_[0].communicator().inputs().coalescing.of_size(bytes_);
    auto& whole = std::get<CollectiveCall>(call.kind);
    whole.send = whole.receive = coalesced_.data();
    std::byte* to = coalesced_.data();
    for (const QueuedCall& queued : calls_) {
        const size_t bytes = operation_of(queued).bytes();
        memcpy(to, collective_of(queued).send, bytes);
        to += bytes;
    }
    const Operation& operation = operation_of(calls_[0]);
    const Votes vote = *votes(operation, calls_[0].communicator().ranks());
    write_vote(to, weftDataType_t(operation.type), in_order() ? vote.fine : vote.objection);
}

bool CoalescedCalls::scatter() const {
    if (on_device()) return true;
    const Operation& operation = operation_of(calls_[0]);
    const size_t element = datatype_bytes[operation.type];
    std::byte fine[8];
    write_vote(fine, weftDataType_t(operation.type), votes(operation, calls_[0].communicator().ranks())->fine);
    if (memcmp(fine, coalesced_.data() + coalesced_.size() - element, element) != 0) return false;
    const std::byte* from = coalesced_.data();
    for (const QueuedCall& queued : calls_) {
        const size_t bytes = operation_of(queued).bytes();
        memcpy(collective_of(queued).receive, from, bytes);
        from += bytes;
    }
    return true;
}

}  // namespace weft::internal
