#include "src/bootstrap/launcher.hpp"

#include <vector>

#include "src/base/options.hpp"

namespace weft {

namespace {

struct Family {
    const char* launcher;
    std::vector<const char*> variables;  // rank, size, then what else must be there
};

// True if all of the family's variables are set, false if none of its own is; else the sentence.
Result<bool> complete(const Family& family, size_t telling) {
    std::string missing, present;
    size_t told = 0;
    for (size_t i = 0; i < family.variables.size(); ++i) {
        if (environment(family.variables[i])) {
            present = family.variables[i];
            told += i < telling;
        } else {
            missing += fmt::format("{}{}", missing.empty() ? "" : ", ", family.variables[i]);
        }
    }
    if (told == 0) return false;
    if (!missing.empty())
        return fail(weftInvalidUsage, "{} is set but {} is not: either all of {}'s variables or none", present, missing,
                    family.launcher);
    return true;
}

Result<int> number(const char* variable, int least) {
    auto value = parse_integer(*environment(variable));
    if (!value || *value < least || *value > INT_MAX)
        return fail(weftInvalidUsage, "{} is `{}`, not a number from {} on", variable, *environment(variable), least);
    return int(*value);
}

Result<Job> job_of(const char* launcher, const char* rank_variable, const char* size_variable, UniqueId id) {
    auto rank = number(rank_variable, 0), size = number(size_variable, 1);
    if (!rank) return rank.take_status();
    if (!size) return size.take_status();
    if (*rank >= *size)
        return fail(weftInvalidUsage, "{} is {} and {} is {}: ranks count from 0 to one less than the size",
                    rank_variable, *rank, size_variable, *size);
    return Job{launcher, *rank, *size, id};
}

}  // namespace

Result<Job> read_job() {
    auto own = complete({"weft run", {"WEFT_RANK", "WEFT_SIZE", "WEFT_UNIQUE_ID"}}, 3);
    if (!own) return own.take_status();
    if (*own) {
        auto bytes = from_hex(*environment("WEFT_UNIQUE_ID"));
        if (!bytes) return fail(weftInvalidUsage, "WEFT_UNIQUE_ID: {}", bytes.status().sentence());
        auto id = UniqueId::read(*bytes);
        if (!id) return fail(weftInvalidUsage, "WEFT_UNIQUE_ID: {}", id.status().sentence());
        return job_of("weft run", "WEFT_RANK", "WEFT_SIZE", *id);
    }
    // RANK and WORLD_SIZE are torchrun's; MASTER_ADDR and MASTER_PORT alone may be left over from something else.
    auto torch = complete({"torchrun", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}}, 2);
    if (!torch) return torch.take_status();
    if (*torch) {
        const auto local_size = environment("LOCAL_WORLD_SIZE");
        if (local_size && *local_size != *environment("WORLD_SIZE"))
            return fail(weftInvalidUsage,
                        "WORLD_SIZE is {} and LOCAL_WORLD_SIZE {}: Weft {}.{} connects ranks of one host",
                        *environment("WORLD_SIZE"), *local_size, WEFT_MAJOR, WEFT_MINOR);
        // Ranks of one job agree on these, and another job or an elastic restart differs in one of them. Whoever knows
        // them could derive the id too, but the meeting is only open to processes of the same user on this host.
        const std::string seed = fmt::format(
            "torchrun {} {} {} {}", *environment("MASTER_ADDR"), *environment("MASTER_PORT"),
            environment("TORCHELASTIC_RUN_ID").value_or(""), environment("TORCHELASTIC_RESTART_COUNT").value_or(""));
        return job_of("torchrun", "RANK", "WORLD_SIZE", UniqueId::derive(seed));
    }
    auto id = UniqueId::make();
    if (!id) return id.take_status();
    return Job{"no launcher", 0, 1, *id};
}

}  // namespace weft
