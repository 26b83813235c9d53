// catalog.hpp: the algorithms that ranks choose among: Weft's own and those of the user's files.
#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"
#include "src/msccl/msccl.hpp"

namespace weft::internal {

// Immutable.
class Catalog {
  public:
    // `files`: paths separated by colons, as in WEFT_ALGO_FILES. Schedules for `ranks` ranks are proved, which takes at
    // most about a minute and a gigabyte; others are left out. `ranks` 0: all are kept unproved, to be listed. A faulty
    // file is left out, so that no communicator fails because of it. `any_order`: ranks may sum in different orders
    // (WEFT_ALGO_FILES_ORDER). `own` must be static.
    static Catalog load(std::string_view files, int ranks, std::span<const Algorithm> own, bool any_order = false);
    // Like load(), but shared by all callers of the process with equal arguments while one of them holds it. Logs each
    // algorithm that is left out. Thread-safe.
    static Result<std::shared_ptr<const Catalog>> shared(std::string_view files, int ranks,
                                                         std::span<const Algorithm> own, bool any_order);

    std::span<const Algorithm> rows() const { return rows_; }
    std::span<const Algorithm> of_users() const { return rows().last(users_.size()); }
    // The names that WEFT_ALGO may use, including algorithms for other numbers of ranks. Views into the catalog.
    std::vector<std::string_view> names() const;
    // Checks a text of the form of WEFT_ALGO (AlgoRules::check). weftInvalidArgument also if it allows an algorithm that
    // was left out as faulty, with the reason. Excluding such an algorithm is no error.
    Status check(const char* variable, std::string_view text) const;
    // An algorithm of the files for another number of ranks, or one that is `faulty`, with the message.
    struct LeftOut {
        std::string name, message;  // the name is empty if the file could not be read
        bool faulty = false;
    };
    const std::vector<LeftOut>& left_out() const { return left_out_; }
    // The messages of the faulty ones, joined; empty: there are none.
    std::string faults() const;
    // One sentence for each assumption about something that a file does not state.
    const std::vector<std::string>& assumptions() const { return assumptions_; }
    bool any_order() const { return any_order_; }
    // The names and files of the algorithms whose results may differ in bits between ranks.
    const std::vector<std::string>& differing() const { return differing_; }
    // The digest of the user's readable files, for any number of ranks. It must be equal on all ranks. 0: no files.
    uint64_t digest() const { return digest_; }

  private:
    void add_file(const std::string& name, int ranks);
    Status add_set(const std::string& file, std::vector<Schedule> schedules, int ranks, const ScheduleFile& read);
    bool has_name(std::string_view name) const;

    std::vector<Algorithm> rows_;
    std::vector<std::unique_ptr<UserAlgorithm>> users_;
    std::vector<LeftOut> left_out_;
    std::vector<std::string> differing_, assumptions_;
    bool any_order_ = false;
    uint64_t digest_ = 0;
};

}  // namespace weft::internal
