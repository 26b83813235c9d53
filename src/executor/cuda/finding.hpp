// finding.hpp: what a rank, or a host, has found out while a domain is made, in the letters that carry it. Values.
#pragma once
#include <algorithm>
#include <string>

#include "src/base/host_group.hpp"
#include "src/base/result.hpp"

namespace weft::cuda {

// What a rank has found out; `text` says what is wrong.
struct Finding {
    uint64_t unreached;  // by bit: ranks whose memory somebody does not reach; 0: something else is wrong, or nothing
    bool good;
    bool root;  // it is this rank that could not offer anything: what the others say follows from that
    char text[86];
    static constexpr size_t piece = sizeof text - 1;
};
inline constexpr int findings = 5;  // letters that a long text may take
static_assert(sizeof(Finding) <= HostGroup::letter_bytes);

// The letters of a finding, in which order they are to be posted: the first letter comes last, who sees it sees all.
template <class Post>
Status in_letters(const Status& status, bool root, uint64_t unreached, Post&& post) {
    const std::string& text = status.sentence();
    for (int letter = findings - 1; letter >= 0; --letter) {
        Finding finding{unreached, status.ok(), root, {}};
        const size_t from = std::min(text.size(), Finding::piece * size_t(letter));
        finding.text[text.copy(finding.text, Finding::piece, from)] = 0;
        if (letter == 0 || from < text.size()) WEFT_TRY(post(letter, finding));
    }
    return ok();
}

// find: the letter of that number, or null.
template <class Find>
std::string text_of(Find&& find) {
    std::string text;
    const Finding* finding;
    for (int letter = 0; letter < findings && (finding = reinterpret_cast<const Finding*>(find(letter))); ++letter)
        text += finding->text;
    return text;
}

}  // namespace weft::cuda
