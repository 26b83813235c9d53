// join_report.hpp: what a rank, or a host, has found out while a domain is made, in the parts that carry it. Values.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>

#include "src/base/result.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// What a rank has found out; `text` says what is wrong. An entry lies at any address.
struct JoinReport {
    std::byte unreached_bytes[sizeof(uint64_t)];
    bool good;
    bool root;  // it is this rank that could not offer anything: what the others say follows from that
    char text[86];
    static constexpr size_t piece = sizeof text - 1;
    // By bit: ranks whose memory somebody does not reach; 0: something else is wrong, or nothing.
    uint64_t unreached() const {
        uint64_t ranks;
        memcpy(&ranks, unreached_bytes, sizeof ranks);
        return ranks;
    }
};
inline constexpr int join_report_letters = 5;  // parts that a long text may take
static_assert(sizeof(JoinReport) <= Segment::oob_value_bytes && alignof(JoinReport) == 1);

// The parts of a join_report, in which order they are to be posted: the first part comes last, who sees it sees all.
template <class Post>
Status put_in_parts(const Status& status, bool root, uint64_t unreached, Post&& post) {
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

// find: the part of that number, or null.
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
