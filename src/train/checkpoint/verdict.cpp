#include "src/train/checkpoint/verdict.hpp"

#include <algorithm>

#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// Rank `root` has the size already.
Status broadcast_bytes(const Peers& peers, std::string& text, uint64_t bytes, int root) {
    text.resize(bytes);
    if (bytes == 0) return ok();
    return peers.broadcast(text.data(), bytes, weftUint8, root);
}

}  // namespace

Status common_verdict(const Peers& peers, Status own) {
    std::string text;
    if (!own) text = std::string(row_of(own.id()).id) + '\n' + own.sentence();
    const uint64_t bytes = text.size();
    std::vector<uint64_t> all(size_t(peers.ranks()));
    WEFT_TRY(peers.all_gather(&bytes, all.data(), sizeof bytes));
    const auto failed = std::find_if(all.begin(), all.end(), [](uint64_t each) { return each > 0; });
    if (failed == all.end()) return ok();
    const int rank = int(failed - all.begin());
    WEFT_TRY(broadcast_bytes(peers, text, *failed, rank));
    if (!own) return own;
    const size_t end = text.find('\n');
    const auto id = error_named(text.substr(0, end));
    return fail(id.value_or(error::internal_exception), "rank {}: {}", rank,
                text.substr(std::min(end, text.size()) + 1))
        .about({.rank = rank});
}

Status attempt(const std::function<Status()>& step) {
    try {
        return step();
    } catch (const std::bad_alloc&) {
        return fail(error::memory_exhausted, "there is no memory for the checkpoint");
    }
}

namespace {

// Where the text of each rank lies in all texts.
struct TextPlaces {
    std::vector<size_t> counts, begins;
    size_t sum = 0;
};

Result<TextPlaces> places_of(const Peers& peers, const std::string& own) {
    const size_t bytes = own.size();
    TextPlaces places;
    places.counts.resize(size_t(peers.ranks()));
    WEFT_TRY(peers.all_gather(&bytes, places.counts.data(), sizeof bytes));
    for (const size_t count : places.counts) {
        places.begins.push_back(places.sum);
        places.sum += count;
    }
    return places;
}

std::vector<std::string> separated(const std::string& all, const TextPlaces& places) {
    std::vector<std::string> texts;
    for (size_t rank = 0; rank < places.counts.size(); ++rank)
        texts.push_back(all.substr(places.begins[rank], places.counts[rank]));
    return texts;
}

}  // namespace

Result<std::vector<std::string>> gather_texts(const Peers& peers, const std::string& own) {
    const auto places = places_of(peers, own);
    if (!places) return places.status().copy();
    std::string all(peers.rank() == 0 ? places->sum : 0, '\0');
    WEFT_TRY(finished(weftGatherv(own.data(), own.size(), all.data(), places->counts.data(), places->begins.data(),
                                  weftUint8, 0, peers.comm(), nullptr),
                      peers.comm()));
    return peers.rank() == 0 ? separated(all, *places) : std::vector<std::string>();
}

Result<std::vector<std::string>> all_gather_texts(const Peers& peers, const std::string& own) {
    const auto places = places_of(peers, own);
    if (!places) return places.status().copy();
    std::string all(places->sum, '\0');
    WEFT_TRY(finished(weftAllGatherv(own.data(), own.size(), all.data(), places->counts.data(), places->begins.data(),
                                     weftUint8, peers.comm(), nullptr),
                      peers.comm()));
    return separated(all, *places);
}

Result<std::string> broadcast_text(const Peers& peers, std::string own) {
    uint64_t bytes = own.size();
    WEFT_TRY(peers.broadcast(&bytes, 1, weftUint64, 0));
    WEFT_TRY(broadcast_bytes(peers, own, bytes, 0));
    return own;
}

}  // namespace weft::internal::train
