#include "tests/model/ptx_model.hpp"

#include <algorithm>
#include <cassert>
#include <map>

namespace weft::internal::test::ptx {

namespace {

using Kind = Event::Kind;

// A relation between at most 32 events.
struct Relation {
    uint32_t row[32] = {};
    bool has(size_t from, size_t to) const { return (row[from] >> to & 1) != 0; }
    void add(size_t from, size_t to) { row[from] |= 1u << to; }
    Relation operator|(const Relation& other) const {
        Relation both = *this;
        for (size_t i = 0; i < 32; ++i) both.row[i] |= other.row[i];
        return both;
    }
    Relation operator&(const Relation& other) const {
        Relation common = *this;
        for (size_t i = 0; i < 32; ++i) common.row[i] &= other.row[i];
        return common;
    }
    // First this relation, then the other.
    Relation then(const Relation& other) const {
        Relation result;
        for (size_t i = 0; i < 32; ++i)
            for (size_t k = 0; k < 32; ++k)
                if (has(i, k)) result.row[i] |= other.row[k];
        return result;
    }
    Relation closed() const {
        Relation result = *this;
        for (size_t k = 0; k < 32; ++k)
            for (size_t i = 0; i < 32; ++i)
                if (result.has(i, k)) result.row[i] |= result.row[k];
        return result;
    }
    bool irreflexive() const {
        for (size_t i = 0; i < 32; ++i)
            if (has(i, i)) return false;
        return true;
    }
    bool acyclic() const { return closed().irreflexive(); }
};

Relation identity() {
    Relation same;
    for (size_t i = 0; i < 32; ++i) same.add(i, i);
    return same;
}

// One choice of sources and orders, and the check of the axioms.
class Execution {
  public:
    Execution(const Program& program, Assume assume) : program_(program), assume_(assume) {
        for (const Event& event : program.events())
            if (event.kind <= Kind::write) locations_[event.location];
        for (const auto& [location, writes] : locations_) events_.push_back({Kind::write, -1, location, 0});
        events_.insert(events_.end(), program.events().begin(), program.events().end());
        assert(events_.size() <= 32);
        for (size_t i = 0; i < events_.size(); ++i)
            if (events_[i].kind == Kind::write) locations_[events_[i].location].push_back(i);
        source_.resize(events_.size());
        fix();
    }

    // Whether some choice is consistent; `next`: the first event without a choice.
    bool any(size_t next = 0) {
        if (next == events_.size()) return any_order(locations_.begin());
        if (events_[next].kind != Kind::read) return any(next + 1);
        return std::ranges::any_of(locations_[events_[next].location], [&](size_t write) {
            if (events_[write].value != events_[next].value) return false;
            source_[next] = write;
            return any(next + 1);
        });
    }

  private:
    using Locations = std::map<int, std::vector<size_t>>;

    bool any_order(Locations::iterator at) {
        if (at == locations_.end()) return consistent();
        std::vector<size_t>& writes = at->second;  // the initial value stays first
        std::sort(writes.begin(), writes.end());
        do
            if (any_order(std::next(at))) return true;
        while (std::next_permutation(writes.begin() + 1, writes.end()));
        return false;
    }

    bool same_location(size_t one, size_t other) const {
        return events_[one].kind <= Kind::write && events_[other].kind <= Kind::write &&
               events_[one].location == events_[other].location;
    }
    bool includes(const Event& event, const Event& other) const {
        const Place here = program_.place(event.thread), there = program_.place(other.thread);
        return event.scope == Scope::sys ||
               (here.gpu == there.gpu && (event.scope == Scope::gpu || here.block == there.block));
    }
    bool morally_strong(size_t one, size_t other) const {
        const Event &a = events_[one], &b = events_[other];
        if (a.thread < 0 || b.thread < 0 || a.by_alias != b.by_alias) return false;
        if (a.thread == b.thread) return true;
        return a.order != Order::weak && b.order != Order::weak && includes(a, b) && includes(b, a);
    }

    // The relations that no choice changes.
    void fix() {
        for (size_t i = 0; i < events_.size(); ++i)
            for (size_t k = 0; k < events_.size(); ++k) {
                const Event &a = events_[i], &b = events_[k];
                if (a.thread < 0 && b.thread >= 0) initial_.add(i, k);
                if (a.thread == b.thread && a.thread >= 0 && i < k) program_order_.add(i, k);
                if (a.kind == Kind::arrive && b.kind == Kind::leave && a.location == b.location) barriers_.add(i, k);
                if (same_location(i, k) && morally_strong(i, k)) strong_.add(i, k);
                if (same_location(i, k) && a.by_alias == b.by_alias) overlaps_.add(i, k);
                if (k == i + 1 && b.of_atomic) atomics_.add(i, k);
            }
        const Relation later = (program_order_ | barriers_).closed();
        for (size_t i = 0; i < events_.size() && assume_ == Assume::loads_return; ++i)
            for (size_t k = 0; k < events_.size() && events_[i].kind == Kind::read; ++k)
                if (program_order_.has(i, k) && (events_[k].kind == Kind::arrive || events_[k].kind == Kind::branch)) {
                    returned_.row[i] |= later.row[k];
                    if (events_[i].order != Order::weak) served_.row[i] |= later.row[k];
                }
    }
    // Base causality without the pairs of accesses by different addresses that have no fence between them.
    Relation by_addresses(const Relation& base) const {
        const Relation path = base | program_order_;
        Relation fenced, result = base;
        for (size_t fence = 0; fence < events_.size(); ++fence)
            for (size_t i = 0; i < events_.size() && events_[fence].kind == Kind::alias_fence; ++i)
                if (path.has(i, fence)) fenced.row[i] |= path.row[fence];
        for (size_t i = 0; i < events_.size(); ++i)
            for (size_t k = 0; k < events_.size(); ++k)
                if (same_location(i, k) && events_[i].thread >= 0 && events_[i].by_alias != events_[k].by_alias) {
                    result.row[i] &= ~(1u << k);
                    if (fenced.has(i, k)) result.add(i, k);
                }
        return result;
    }

    bool consistent() const {
        Relation reads_from, coherence, from_reads;
        for (const auto& [location, writes] : locations_)
            for (size_t i = 0; i < writes.size(); ++i)
                for (size_t k = i + 1; k < writes.size(); ++k) coherence.add(writes[i], writes[k]);
        for (size_t read = 0; read < events_.size(); ++read) {
            if (events_[read].kind != Kind::read) continue;
            reads_from.add(source_[read], read);
            from_reads.row[read] = coherence.row[source_[read]];
        }
        // An atomic operation reads what is right before its write.
        for (size_t i = 0; i < events_.size(); ++i)
            for (size_t k = 0; k < events_.size(); ++k)
                if (atomics_.has(i, k) && (from_reads.row[i] & before(coherence, k)) != 0) return false;
        const Relation strong_reads = reads_from & strong_;
        Relation observation = strong_reads;
        for (size_t i = 0; i < events_.size(); ++i)
            observation = observation | observation.then(atomics_).then(strong_reads);
        Relation synchronizes = barriers_;
        for (size_t i = 0; i < events_.size(); ++i)
            for (size_t k = 0; k < events_.size(); ++k)
                if (observation.has(i, k) && events_[i].order == Order::release && events_[k].order == Order::acquire &&
                    morally_strong(i, k))
                    synchronizes.add(i, k);
        const Relation around = program_order_ | identity();
        const Relation base = by_addresses((around.then(synchronizes).then(around) | initial_).closed());
        const Relation cause = base | observation.then(base | (program_order_ & overlaps_));
        // Coherence, sequential order of each location, causality.
        for (const auto& [location, writes] : locations_)
            for (size_t i = 0; i < writes.size(); ++i)
                for (size_t k = 0; k < i; ++k)
                    if (cause.has(writes[i], writes[k])) return false;
        const Relation communication = reads_from | coherence | from_reads;
        return (reads_from | returned_).acyclic() && (reads_from | served_ | coherence).acyclic() &&
               ((communication & strong_) | (program_order_ & overlaps_)).acyclic() &&
               (reads_from | from_reads).then(cause).irreflexive();
    }
    static uint32_t before(const Relation& order, size_t event) {
        uint32_t all = 0;
        for (size_t i = 0; i < 32; ++i)
            if (order.has(i, event)) all |= 1u << i;
        return all;
    }

    const Program& program_;
    const Assume assume_;
    std::vector<Event> events_;
    Locations locations_;         // the writes of each, in coherence order
    std::vector<size_t> source_;  // of each read
    Relation initial_, program_order_, barriers_, strong_, overlaps_, atomics_;
    Relation returned_, served_;  // from a read, or a strong one, to the writes before which it has its value
};

}  // namespace

int Program::thread(Place place) {
    places_.push_back(place);
    return int(places_.size()) - 1;
}
void Program::write(int thread, int location, int value, Order order, Scope scope) {
    events_.push_back({Event::Kind::write, thread, location, value, order, scope});
}
void Program::read(int thread, int location, int value, Order order, Scope scope) {
    events_.push_back({Event::Kind::read, thread, location, value, order, scope});
}
void Program::atomic(int thread, int location, int before, int after, Order order, Scope scope) {
    const bool relaxed = order == Order::relaxed;
    read(thread, location, before, relaxed ? Order::relaxed : Order::acquire, scope);
    events_.push_back(
        {Event::Kind::write, thread, location, after, relaxed ? Order::relaxed : Order::release, scope, true});
}
void Program::barrier(int thread, int number) {
    events_.push_back({Event::Kind::arrive, thread, number, 0});
    events_.push_back({Event::Kind::leave, thread, number, 0});
}
void Program::branch(int thread) { events_.push_back({Event::Kind::branch, thread, 0, 0}); }
void Program::alias_fence(int thread) { events_.push_back({Event::Kind::alias_fence, thread, 0, 0}); }
bool Program::allowed(Assume assume) const { return Execution(*this, assume).any(); }

}  // namespace weft::internal::test::ptx
