#include "src/train/agreement.hpp"

#include <algorithm>

#include "src/base/datatype.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// FNV-1a.
uint64_t hash_of(const std::string& text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char letter : text) hash = (hash ^ uint8_t(letter)) * 0x100000001b3u;
    return hash;
}

// The ranks compare it before they send texts.
struct Digest {
    uint64_t bytes = 0, hash = 0, failed = 0;
    bool operator==(const Digest&) const = default;
};

std::string line_at(const std::string& text, size_t begin) {
    if (begin >= text.size()) return "nothing more";
    return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

void add_line(std::string& text, const char* kind, size_t number, const std::string& name, const TensorFacts& facts) {
    std::string line = name;
    std::replace(line.begin(), line.end(), '\n', ' ');  // lines end with it
    const std::string rows = facts.rows > 0 ? fmt::format(" in {} rows", facts.rows) : "";
    text += fmt::format("{} {}, \"{}\", with {} elements of {}{}\n", kind, number, line, facts.count,
                        name_of(facts.type), rows);
}

Difference first_difference(const std::string& left, const std::string& right) {
    const auto ends = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
    const size_t at = size_t(ends.first - left.begin());
    const size_t before = at == 0 ? std::string::npos : left.rfind('\n', at - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    return {line_at(left, begin), line_at(right, begin)};
}

Status check_agreement(const Peers& peers, std::string own, Status failure) {
    if (!failure) own = failure.sentence();
    const Digest digest{own.size(), hash_of(own), failure ? 0u : 1u};
    std::vector<Digest> all(size_t(peers.ranks()));
    Status gathered = peers.all_gather(&digest, all.data(), sizeof digest);
    if (!gathered) return failure ? std::move(gathered) : std::move(failure);
    const auto failed = std::find_if(all.begin(), all.end(), [](const Digest& each) { return each.failed != 0; });
    if (failed != all.end()) {
        const int rank = int(failed - all.begin());
        own.resize(failed->bytes);
        Status sent = peers.broadcast(own.data(), own.size(), weftUint8, rank);
        if (!failure) return failure;
        WEFT_TRY(std::move(sent));
        return fail(error::train_model, "rank {} could not register its model: {}", rank, own).about({.rank = rank});
    }
    const auto other = std::find_if(all.begin(), all.end(), [&](const Digest& each) { return each != all[0]; });
    if (other == all.end()) return ok();
    const int rank = int(other - all.begin());
    std::string texts[2];
    for (const int root : {0, rank}) {
        std::string& text = texts[root == 0 ? 0 : 1];
        text = own;
        text.resize(all[size_t(root)].bytes);
        WEFT_TRY(peers.broadcast(text.data(), text.size(), weftUint8, root));
    }
    const auto [left, right] = first_difference(texts[0], texts[1]);
    return fail(error::train_model,
                "the ranks registered different models: rank 0 has {}, but rank {} has {}. Register the same names, "
                "counts, types and settings in the same order on all ranks",
                left, rank, right)
        .about({.rank = rank, .peer = 0});
}

}  // namespace weft::internal::train
