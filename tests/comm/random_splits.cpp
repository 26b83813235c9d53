#include "tests/comm/random_splits.hpp"

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

namespace weft::internal::test {

namespace {

constexpr size_t most_alive = 10;

// A communicator as every rank knows it: its ranks, by their number in the first one; and the handles we have.
struct Known {
    std::vector<int> members;
    std::map<int, weftComm_t> own;
};

class Family {
  public:
    Family(const std::map<int, weftComm_t>& world, int ranks, uint32_t seed) : seed_(seed), random_(seed) {
        Known first;
        for (int rank = 0; rank < ranks; ++rank) first.members.push_back(rank);
        first.own = world;
        alive_.push_back(first);
    }

    std::string run(int steps) {
        for (step_ = 0; step_ < steps && wrong_.empty(); ++step_) {
            const size_t chosen = draw(uint32_t(alive_.size()));
            const uint32_t what = draw(8);
            // The first one stays to the end, so that large ones are made until then.
            if (alive_.size() >= most_alive || (what == 0 && alive_.size() > 1))
                end(1 + draw(uint32_t(alive_.size() - 1)));
            else if (what <= 2)
                split(chosen);
            else if (what == 3)
                shrink(chosen, chosen > 0 && draw(2) == 0);
            else
                gather(chosen);
        }
        // No rank shall wait for one that has given up.
        while (!alive_.empty() && wrong_.empty()) end(draw(uint32_t(alive_.size())));
        for (const Known& known : alive_)
            for (const auto& [rank, comm] : known.own) (void)weftCommAbort(comm);
        return wrong_;
    }

  private:
    uint32_t draw(uint32_t below) { return random_() % below; }
    void check(bool right, const std::string& what) {
        if (!right && wrong_.empty())
            wrong_ = "seed " + std::to_string(seed_) + ", step " + std::to_string(step_) + ": " + what;
    }
    void check(weftResult_t code) { check(code == weftSuccess, weftGetLastError(nullptr)); }
    // Several ranks of one thread call in a group.
    template <class Call>
    void together(const Known& known, Call&& call) {
        if (known.own.size() > 1) check(weftGroupStart());
        for (const auto& [rank, comm] : known.own) call(rank, comm);
        if (known.own.size() > 1) check(weftGroupEnd());
    }

    void adopt(Known child) {
        for (const auto& [rank, comm] : child.own) {
            int number = -1, count = -1;
            if (comm) check(weftCommUserRank(comm, &number));
            if (comm) check(weftCommCount(comm, &count));
            check(size_t(count) == child.members.size() && child.members[size_t(number)] == rank,
                  "rank " + std::to_string(rank) + " is " + std::to_string(number) + " of " + std::to_string(count));
        }
        alive_.push_back(std::move(child));
    }

    void split(size_t chosen) {
        const Known parent = alive_[chosen];
        const int colors = 1 + int(draw(3));
        std::map<int, int> color, key;
        std::map<int, std::vector<std::pair<int, size_t>>> order;  // of a colour: key, place in the parent
        for (size_t place = 0; place < parent.members.size(); ++place) {
            const int rank = parent.members[place];
            color[rank] = draw(5) == 0 ? WEFT_SPLIT_NOCOLOR : int(draw(uint32_t(colors)));
            key[rank] = int(draw(4)) - 2;
            if (color[rank] >= 0) order[color[rank]].emplace_back(key[rank], place);
        }
        std::map<int, weftComm_t> made = parent.own;
        together(parent, [&](int rank, weftComm_t comm) {
            check(weftCommSplit(comm, color[rank], key[rank], &made[rank], nullptr));
        });
        for (auto& [its, places] : order) {
            std::sort(places.begin(), places.end());
            Known child;
            for (const auto& [unused, place] : places) {
                const int rank = parent.members[place];
                child.members.push_back(rank);
                if (const auto own = made.find(rank); own != made.end()) child.own.insert(*own);
            }
            adopt(std::move(child));
        }
        for (const auto& [rank, comm] : made)
            check((comm == nullptr) == (color[rank] < 0),
                  "a rank without a colour got a communicator, or one with it none");
    }

    // A call that a rank has begun on a stream, on a communicator that other ranks shrink and abort.
    struct Begun {
        weftStream_t stream = nullptr;
        std::vector<int> given, got;
        bool may_end_well = false;
        bool refused = false;  // others have aborted already
    };
    enum class Outstanding { nothing, of_those_who_stay, of_all, that_nobody_sends };

    void check_or_aborted(weftResult_t code) {
        if (code != weftRemoteError) check(code);
    }
    std::map<int, Begun> begin(const Known& parent, const Known& staying) {
        // No earlier call is in progress anywhere; this one may be, on a slow rank.
        if (parent.own.size() > 1) check(weftGroupStart());
        for (const auto& [rank, comm] : parent.own) check_or_aborted(weftBarrier(comm, nullptr));
        if (parent.own.size() > 1) check_or_aborted(weftGroupEnd());
        const auto what = Outstanding(draw(4));
        const size_t count = 1 + draw(20'000);
        std::map<int, Begun> all;
        for (const auto& [rank, comm] : parent.own) {
            if (what == Outstanding::nothing) break;
            if (what == Outstanding::of_those_who_stay && staying.own.count(rank) == 0) continue;
            Begun& its = all[rank];
            its.given.assign(count, rank * 1000 + step_);
            its.got.resize(count * parent.members.size());
            its.may_end_well = what == Outstanding::of_all;
            check(weftStreamCreate(&its.stream));
            int number = -1;
            check(weftCommUserRank(comm, &number));
            const weftResult_t code =
                what == Outstanding::that_nobody_sends
                    ? weftRecv(its.got.data(), count, weftInt32, (number + 1) % int(parent.members.size()), comm,
                               its.stream)
                    : weftAllGather(its.given.data(), its.got.data(), count, weftInt32, comm, its.stream);
            its.refused = code == weftRemoteError;
            check_or_aborted(code);
        }
        return all;
    }
    // It is right, or has ended with weftRemoteError.
    void conclude(const Known& parent, std::map<int, Begun>& all) {
        for (auto& [rank, its] : all) {
            const weftResult_t code = weftStreamDestroy(its.stream);
            if (code == weftSuccess && its.may_end_well && !its.refused)
                check_gathered(parent, rank, its.got);
            else
                check((code == weftSuccess && its.refused) || code == weftRemoteError,
                      "what was in progress on rank " + std::to_string(rank) + " ended with " + std::to_string(code) +
                          ": " + weftGetLastError(nullptr));
        }
    }

    void shrink(size_t chosen, bool abort) {
        const Known parent = alive_[chosen];
        std::vector<int> excluded;
        Known child;
        for (size_t place = 0; place < parent.members.size(); ++place) {
            const bool out = draw(3) == 0;
            if (out) excluded.push_back(int(place));
            if (!out) child.members.push_back(parent.members[place]);
        }
        if (excluded.empty() || child.members.empty()) return;
        Known callers = parent;
        for (const int place : excluded) callers.own.erase(parent.members[size_t(place)]);
        child.own = callers.own;
        std::map<int, Begun> begun;
        if (abort) begun = begin(parent, callers);
        bool no_place = false;
        together(callers, [&](int rank, weftComm_t comm) {
            const weftResult_t code = weftCommShrink(comm, excluded.data(), int(excluded.size()), &child.own[rank],
                                                     nullptr, abort ? WEFT_SHRINK_ABORT : WEFT_SHRINK_DEFAULT);
            // Which processes came first on their hosts is not known here; without them all are refused alike.
            weftErrorInfo_t error = WEFT_ERROR_INFO_INITIALIZER;
            if (code != weftSuccess) check(weftGetLastErrorInfo(nullptr, &error));
            no_place = std::string_view(error.id) == "init.leader-lost";
            if (!no_place) check(code);
        });
        // The excluded ranks do not learn of it, so it counts as one without members here.
        if (no_place) child.own.clear();
        if (abort) {
            conclude(parent, begun);
            end(chosen);
        }
        if (!wrong_.empty()) return;
        adopt(std::move(child));
        gather(alive_.size() - 1);
    }

    void gather(size_t chosen) {
        const Known& known = alive_[chosen];
        const size_t count = 1 + draw(3000);
        std::map<int, std::vector<int>> given, gathered;
        for (const auto& [rank, comm] : known.own) {
            given[rank].assign(count, rank * 1000 + step_);
            gathered[rank].resize(count * known.members.size());
        }
        together(known, [&](int rank, weftComm_t comm) {
            check(weftAllGather(given[rank].data(), gathered[rank].data(), count, weftInt32, comm, nullptr));
        });
        for (const auto& [rank, values] : gathered) check_gathered(known, rank, values);
    }
    void check_gathered(const Known& known, int rank, const std::vector<int>& values) {
        const size_t count = values.size() / known.members.size();
        for (size_t i = 0; i < values.size(); ++i)
            if (values[i] != known.members[i / count] * 1000 + step_)
                return check(false, "rank " + std::to_string(rank) + " gathered " + std::to_string(values[i]) +
                                        " as element " + std::to_string(i));
    }

    void end(size_t chosen) {
        for (const auto& [rank, comm] : alive_[chosen].own) check(weftCommDestroy(comm));
        alive_.erase(alive_.begin() + ptrdiff_t(chosen));
    }

    uint32_t seed_;
    std::mt19937 random_;
    int step_ = 0;
    std::vector<Known> alive_;
    std::string wrong_;
};

}  // namespace

std::string run_random_splits(const std::map<int, weftComm_t>& world, int ranks, uint32_t seed, int steps) {
    return Family(world, ranks, seed).run(steps);
}

}  // namespace weft::internal::test
