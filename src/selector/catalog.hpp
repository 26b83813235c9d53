// catalog.hpp: the algorithms that ranks choose among: Weft's own, and those of the user's files.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"

namespace weft {

// Immutable.
class Catalog {
  public:
    // `files`: as WEFT_ALGO_FILES, paths separated by colons. All are read; those for `ranks` ranks are proved, which
    // costs about a minute and a gigabyte at most, and the others left out; 0: all are in, unproved, to be listed.
    // `own` lives for ever.
    // weftInvalidUsage: a file is no algorithm, is not right, or takes a name of ours: the sentence says where and why.
    static Result<Catalog> load(std::string_view files, int ranks, std::span<const Algorithm> own);
    // The same once a process for all that ask for the same, as long as any of them lives. Thread-safe.
    static Result<std::shared_ptr<const Catalog>> shared(std::string_view files, int ranks,
                                                         std::span<const Algorithm> own);

    std::span<const Algorithm> rows() const { return rows_; }
    std::span<const Algorithm> of_users() const { return rows().last(users_.size()); }
    // As WEFT_ALGO may have them: of algorithms for other numbers of ranks too. Views of what the catalog holds.
    std::vector<std::string_view> names() const;
    // What the files have for other numbers of ranks, and how a user is told.
    struct LeftOut {
        std::string name, told;
    };
    const std::vector<LeftOut>& left_out() const { return left_out_; }
    // Of the user's files, whatever the ranks: the same on all ranks that choose alike; 0: there are none.
    uint64_t digest() const { return digest_; }

  private:
    Status add_file(const std::string& name, int ranks);

    std::vector<Algorithm> rows_;
    std::vector<std::unique_ptr<UserAlgorithm>> users_;
    std::vector<LeftOut> left_out_;
    uint64_t digest_ = 0;
};

}  // namespace weft
