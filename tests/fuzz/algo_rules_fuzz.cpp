// algo_rules_fuzz.cpp: any bytes as WEFT_ALGO end in an error, or in rules that bind each size as the border below it.
//     build/tests/fuzz/algo_rules_fuzz -dict=tests/fuzz/algo_rules.dict corpus tests/fuzz/algo_rules
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "src/selector/algo_rules.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    using namespace weft::internal;
    static const std::vector<Algorithm> rows = {
        {.name = "ring", .collective = Collective::all_reduce, .build = nullptr, .predict_us = nullptr, .cost = ""},
        {.name = "ring", .collective = Collective::all_gather, .build = nullptr, .predict_us = nullptr, .cost = ""},
        {.name = "linear",
         .collective = Collective::scatter,
         .build = nullptr,
         .predict_us = nullptr,
         .cost = "",
         .refuses = [](const Layout& layout) { return layout.ranks > 2 ? "of two" : nullptr; }}};
    const std::string text(reinterpret_cast<const char*>(data), bytes);
    const Status known = AlgoRules::check("WEFT_ALGO", text, {"ring", "linear"});
    if (!known) {
        if (known.sentence().find("WEFT_ALGO") == std::string::npos) std::abort();
        return 0;
    }
    const AlgoRules rules(text, layout_in_blocks(4, 1), rows);
    std::vector<size_t> borders = rules.borders();
    std::sort(borders.begin(), borders.end());
    for (const Collective collective : all_collectives)
        for (const size_t border : borders)
            for (const size_t size : {border, border + 1, border + 4096, border - 1}) {
                const size_t below = *(std::upper_bound(borders.begin(), borders.end(), size) - 1);
                if (rules.names_for(collective, size) != rules.names_for(collective, below)) std::abort();
            }
    return 0;
}
