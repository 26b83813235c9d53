#include "src/train/checkpoint/replica_groups.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace weft::internal::train {

std::vector<int> replica_group(int ranks, int jump, int copies, int rank) {
    const int block = jump * copies, begin = rank / block * block, first = begin + rank % jump;
    std::vector<int> group;
    for (int member = first; member < std::min(begin + block, ranks); member += jump) group.push_back(member);
    return group;
}

namespace {

// Of one save. Empty: an owner has no copy, which `lost` names.
std::vector<HeldCopy> one_of_each_owner(const std::vector<HeldCopy>& copies, int& lost) {
    std::vector<HeldCopy> chosen;
    std::map<int, int> sends;  // of each holder
    for (int owner = 0; owner < copies.front().ranks; ++owner) {
        std::optional<HeldCopy> best;
        const auto cost = [&](const HeldCopy& copy) { return std::pair(copy.holder != owner, sends[copy.holder]); };
        for (const HeldCopy& copy : copies)
            if (copy.owner == owner && (!best || cost(copy) < cost(*best))) best = copy;
        if (!best) {
            lost = owner;
            return {};
        }
        if (best->holder != owner) ++sends[best->holder];
        chosen.push_back(*best);
    }
    return chosen;
}

}  // namespace

Result<std::vector<HeldCopy>> choose_copies(std::vector<HeldCopy> held) {
    std::map<std::pair<uint64_t, uint64_t>, std::vector<HeldCopy>> saves;  // by version and id
    for (const HeldCopy& copy : held) saves[{copy.version, copy.save}].push_back(copy);
    if (saves.empty())
        return fail(error::train_replica_lost, "no rank holds a copy: call weftTrainReplicaSave before a failure");
    int lost = 0;
    for (auto save = saves.rbegin(); save != saves.rend(); ++save) {
        auto chosen = one_of_each_owner(save->second, lost);
        if (!chosen.empty()) return chosen;
    }
    return fail(error::train_replica_lost,
                "all copies of the state of rank {} in version {} are lost: load a checkpoint from a file system", lost,
                saves.begin()->first.first)
        .about({.rank = lost});
}

}  // namespace weft::internal::train
