// join_report.hpp: the report that a rank or a host sends while a domain is made, split into out-of-band entries.
// Values.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>

#include "src/base/result.hpp"
#include "src/gpu/kernels/rank_bits.hpp"
#include "src/segment/oob_store.hpp"

namespace weft::internal::cuda {

// A rank's report; `text` says what is wrong. An entry may lie at any address.
struct JoinReport {
    std::byte unreached_bytes[sizeof(RankBits)];
    bool good;
    bool root;  // this rank is the root cause: it could not export memory, and other ranks' reports follow from that
    char text[78];
    static constexpr size_t piece = sizeof text - 1;
    // The ranks whose memory some rank cannot reach. None: the fault is a different one, or there is none.
    RankBits unreached() const {
        RankBits ranks;
        memcpy(&ranks, unreached_bytes, sizeof ranks);
        return ranks;
    }
};
inline constexpr int join_report_letters = 5;  // the most parts of a long text
static_assert(sizeof(JoinReport) <= OobEntry::value_bytes && alignof(JoinReport) == 1);

// Posts the parts of a report, the first part last: a reader that sees the first part sees all parts.
template <class Post>
Status put_in_parts(const Status& status, bool root, const RankBits& unreached, Post&& post) {
    const std::string& text = status.sentence();
    for (int part = join_report_letters - 1; part >= 0; --part) {
        JoinReport join_report{{}, status.ok(), root, {}};
        memcpy(join_report.unreached_bytes, &unreached, sizeof unreached);
        const size_t from = std::min(text.size(), JoinReport::piece * size_t(part));
        join_report.text[text.copy(join_report.text, JoinReport::piece, from)] = 0;
        if (part == 0 || from < text.size()) WEFT_TRY(post(part, join_report));
    }
    return ok();
}

// find(number): the part with this number, or null.
template <class Find>
std::string text_of(Find&& find) {
    std::string text;
    const JoinReport* join_report;
    for (int part = 0; part < join_report_letters && (join_report = reinterpret_cast<const JoinReport*>(find(part)));
         ++part)
        text += join_report->text;
    return text;
}

}  // namespace weft::internal::cuda
