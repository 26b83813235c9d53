// agreement.hpp: the check that all ranks registered the same model, whose facts are lines of text.
#pragma once
#include <string>

#include "src/base/result.hpp"
#include "src/train/bucket_layout.hpp"

namespace weft::internal::train {

class Peers;

// One line about a parameter or buffer, for the text of a model.
void add_line(std::string& text, const char* kind, size_t number, const std::string& name, const TensorFacts& facts);

// The first line that differs, as both ranks have it.
struct Difference {
    std::string left, right;
};
Difference first_difference(const std::string& left, const std::string& right);

// All ranks call it with their text, also one that has failed: `failure` is its error, which it returns. If a rank has
// failed, or the texts differ, all others return the same sentence, about that rank or the first one that differs from
// rank 0.
Status check_agreement(const Peers& peers, std::string own, Status failure);

}  // namespace weft::internal::train
