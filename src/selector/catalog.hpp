// catalog.hpp: the algorithms that ranks choose among: Weft's own, and those of the user's files.
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
    // `files`: as WEFT_ALGO_FILES, paths separated by colons. All are read; those for `ranks` ranks are proved, which
    // costs about a minute and a gigabyte at most, and the others left out; 0: all are in, unproved, to be listed.
    // What cannot be used is left out as well: no communicator fails because of a file. `any_order`: ranks may sum in
    // different orders (WEFT_ALGO_FILES_ORDER). `own` lives for ever.
    static Catalog load(std::string_view files, int ranks, std::span<const Algorithm> own, bool any_order = false);
    // The same, made once a process for all callers with equal arguments, as long as one of them holds it. Logs each
    // algorithm that it leaves out. Thread-safe.
    static Result<std::shared_ptr<const Catalog>> shared(std::string_view files, int ranks,
                                                         std::span<const Algorithm> own, bool any_order);

    std::span<const Algorithm> rows() const { return rows_; }
    std::span<const Algorithm> of_users() const { return rows().last(users_.size()); }
    // As WEFT_ALGO may have them: of algorithms for other numbers of ranks too. Views of what the catalog holds.
    std::vector<std::string_view> names() const;
    // Whether `text`, as WEFT_ALGO has it, names what there is (AlgoRules::check). weftInvalidArgument, also if it wants
    // an algorithm that was left out as faulty: then with the reason. To exclude one is no error.
    Status check(const char* variable, std::string_view text) const;
    // An algorithm of the files for another number of ranks, or one that cannot be used (`faulty`), with the message.
    struct LeftOut {
        std::string name, told;  // name: empty of a file that could not be read
        bool faulty = false;
    };
    const std::vector<LeftOut>& left_out() const { return left_out_; }
    // The faulty ones, in one sentence; empty: there are none.
    std::string faults() const;
    // One sentence for each thing that a file does not state and Weft assumes.
    const std::vector<std::string>& assumptions() const { return assumptions_; }
    bool any_order() const { return any_order_; }
    // The names and files of the algorithms whose results may have other bits on each rank.
    const std::vector<std::string>& differing() const { return differing_; }
    // Of the user's files that could be read, for any number of ranks. Ranks that choose alike have the same digest. 0:
    // there are no files.
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
