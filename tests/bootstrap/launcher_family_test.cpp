// launcher_family_test.cpp: the launcher that a process's variables identify, and every way in which they may be wrong.
#include "src/launchers/launcher_family.hpp"

#include <algorithm>

#include "tests/bootstrap/fake_environment.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

struct Case {
    std::string launcher;
    Variables variables;
    LaunchedRank place;
};

// As each launcher sets them for rank 3 of 8, two hosts of 6 and 2 where it says so.
const std::vector<Case>& cases() {
    static const std::vector<Case> all{
        {"weft run",
         {{"WEFT_RANK", "3"},
          {"WEFT_SIZE", "8"},
          {"WEFT_UNIQUE_ID", "ab"},
          {"WEFT_LOCAL_RANK", "3"},
          {"WEFT_LOCAL_SIZE", "8"}},
         {3, 8, 3, 8}},
        {"weft run", {{"WEFT_RANK", "3"}, {"WEFT_SIZE", "8"}, {"WEFT_ROOT_HOST", "node1"}}, {3, 8, -1, -1}},
        {"torchrun",
         {{"TORCHELASTIC_RUN_ID", "7"},
          {"RANK", "3"},
          {"WORLD_SIZE", "8"},
          {"MASTER_ADDR", "node1"},
          {"MASTER_PORT", "29500"},
          {"LOCAL_RANK", "3"},
          {"LOCAL_WORLD_SIZE", "6"}},
         {3, 8, 3, 6}},
        {"env://",
         {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}},
         {3, 8, -1, -1}},
        {"Horovod",
         {{"HOROVOD_RANK", "3"},
          {"HOROVOD_SIZE", "8"},
          {"HOROVOD_LOCAL_RANK", "3"},
          {"HOROVOD_LOCAL_SIZE", "6"},
          {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
          {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4000"}},
         {3, 8, 3, 6}},
        {"Open MPI",
         {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "8"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "6"},
          {"PMIX_RANK", "3"},
          {"PMIX_NAMESPACE", "prterun-a-1@1"},
          {"PRTE_LAUNCHED", "1"}},
         {3, 8, 3, 6}},
        {"Intel MPI",
         {{"I_MPI_HYDRA_UUID", "4b"},
          {"PMI_RANK", "3"},
          {"PMI_SIZE", "8"},
          {"PMI_FD", "9"},
          {"MPI_LOCALRANKID", "3"},
          {"MPI_LOCALNRANKS", "6"}},
         {3, 8, 3, 6}},
        {"MPICH",
         {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"PMI_FD", "9"}, {"MPI_LOCALRANKID", "3"}, {"MPI_LOCALNRANKS", "6"}},
         {3, 8, 3, 6}},
        {"srun --mpi=pmi2",
         {{"PMI_RANK", "3"},
          {"PMI_SIZE", "8"},
          {"PMI_FD", "9"},
          {"PMI_JOBID", "12.0"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "3"},
          {"SLURM_STEP_NUM_TASKS", "8"},
          {"SLURM_LOCALID", "3"},
          {"SLURM_NODEID", "0"},
          {"SLURM_STEP_TASKS_PER_NODE", "6,2"}},
         {3, 8, 3, 6}},
        {"PMI", {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}, {"PMI_FD", "9"}}, {3, 8, -1, -1}},
        {"prterun", {{"PRTE_LAUNCHED", "1"}, {"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-a-1@1"}}, {3, -1, -1, -1}},
        {"srun --mpi=pmix",
         {{"PMIX_RANK", "3"},
          {"PMIX_NAMESPACE", "slurm.pmix.12.0"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "3"},
          {"SLURM_STEP_NUM_TASKS", "8"}},
         {3, 8, -1, -1}},
        {"PMIx", {{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "pals-1"}}, {3, -1, -1, -1}},
        {"srun",
         {{"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "3"},
          {"SLURM_STEP_NUM_TASKS", "8"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"}},
         {3, 8, 1, 2}},
        {"Kubernetes", {{"JOB_COMPLETION_INDEX", "3"}, {"WEFT_SIZE", "8"}}, {3, 8, 0, 1}},
    };
    return all;
}

std::string found_name() {
    const auto family = find_family();
    INFO(family.status().sentence());
    REQUIRE(family);
    return *family ? (*family)->name : "none";
}

// The error about these variables, from finding the family or from reading its numbers.
std::string objection(const Variables& variables) {
    FakeEnvironment environment(variables);
    const auto family = find_family();
    const Status* status = &family.status();
    auto place = family && *family ? read_launched_rank(**family) : Result<LaunchedRank>(LaunchedRank{});
    if (family) status = &place.status();
    CHECK_ERROR(*status, "launcher.variables");
    return status->sentence();
}

}  // namespace

TEST_CASE("every launcher's variables identify the process", "[launcher_family]") {
    for (const Case& each : cases()) {
        INFO(each.launcher);
        FakeEnvironment environment(each.variables);
        REQUIRE(found_name() == each.launcher);
        const auto place = read_launched_rank(**find_family());
        INFO(place.status().sentence());
        REQUIRE(place);
        CHECK(place->rank == each.place.rank);
        CHECK(place->ranks == each.place.ranks);
        CHECK(place->local_rank == each.place.local_rank);
        CHECK(place->local_size == each.place.local_size);
    }
    // A row without a case would be a row without a test.
    for (const Family& family : launcher_families())
        CHECK(
            std::any_of(cases().begin(), cases().end(), [&](const Case& one) { return one.launcher == family.name; }));
}

TEST_CASE("the innermost of several launchers wins, which is the first row", "[launcher_family]") {
    for (size_t inner = 0; inner < cases().size(); ++inner) {
        for (size_t outer = inner + 1; outer < cases().size(); ++outer) {
            Variables both = cases()[outer].variables;
            for (const auto& [name, value] : cases()[inner].variables) both[name] = value;
            FakeEnvironment environment(both);
            const std::string found = found_name();
            INFO(cases()[inner].launcher << " in " << cases()[outer].launcher);
            // A variable that only distinguishes two names of one launcher comes from the outer one.
            const bool renamed = (cases()[inner].launcher == "srun --mpi=pmi2" || cases()[inner].launcher == "PMI" ||
                                  cases()[inner].launcher == "MPICH" || cases()[inner].launcher == "PMIx" ||
                                  cases()[inner].launcher == "env://") &&
                                 found != cases()[inner].launcher;
            if (!renamed) {
                CHECK(found == cases()[inner].launcher);
            } else {
                const Family& family = **find_family();
                const auto row = [&](const std::string& name) {
                    return std::find_if(launcher_families().begin(), launcher_families().end(),
                                        [&](const Family& one) { return one.name == name; });
                };
                CHECK(std::string(family.rank) == row(cases()[inner].launcher)->rank);
            }
        }
    }
}

// RANK and WORLD_SIZE stand in a shell or an image, and a launcher that sets its own variables starts the process.
TEST_CASE("a left-over RANK or WORLD_SIZE is overruled by the launcher that started the process", "[launcher_family]") {
    const auto merged = [](Variables variables, const Variables& more) {
        for (const auto& [name, value] : more) variables[name] = value;
        return variables;
    };
    const Variables alone{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29999"}};
    const Variables parts[] = {{{"WORLD_SIZE", "1"}},
                               {{"WORLD_SIZE", "9"}},
                               {{"RANK", "0"}},
                               {{"RANK", "0"}, {"WORLD_SIZE", "8"}, {"MASTER_PORT", "29999"}}};
    int overruled = 0;
    for (const Case& each : cases()) {
        const bool earlier = each.launcher == "weft run" || each.launcher == "torchrun" || each.launcher == "env://";
        INFO(each.launcher);
        if (each.launcher == "env://") continue;
        {
            FakeEnvironment environment(merged(alone, each.variables));
            CHECK(found_name() == each.launcher);
        }
        for (const Variables& part : parts) {
            FakeEnvironment environment(merged(part, each.variables));
            CHECK(found_name() == each.launcher);
        }
        if (earlier) continue;
        ++overruled;
        const Family family = [&] {
            FakeEnvironment environment(each.variables);
            return **find_family();
        }();
        Variables world = alone;
        world["WORLD_SIZE"] = "4";
        if (!*family.size) {  // its server says how many there are
            FakeEnvironment environment(merged(world, each.variables));
            CHECK(found_name() == "env://");
            continue;
        }
        const std::string sentence = objection(merged(world, each.variables));
        CHECK(sentence.find("env://") != std::string::npos);
        CHECK(sentence.find(each.launcher) != std::string::npos);
        world["WORLD_SIZE"] = "8";
        {
            FakeEnvironment environment(merged(world, each.variables));
            CHECK(found_name() == "env://");
        }
        // A launcher of one process, as of a Ray worker's node, is the outer one.
        Variables single = merged(each.variables, {{family.rank, "0"}, {family.size, "1"}});
        {
            FakeEnvironment environment(merged(single, world));
            CHECK(found_name() == "env://");
        }
        // A part of a launcher's variables overrules nothing. These launchers set another row's variables too.
        if (each.launcher == "Open MPI" || each.launcher == "srun --mpi=pmi2") continue;
        single.erase(family.rank);
        FakeEnvironment environment(merged(single, alone));
        CHECK(found_name() == "env://");
    }
    CHECK(overruled > 8);
}

TEST_CASE("left-over variables alone are no launcher", "[launcher_family]") {
    const Variables none[] = {
        {},
        // Without a rank.
        {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}},
        {{"LOCAL_RANK", "0"}},
        {{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "8"}},
        // A batch script is task 0 of a job of 8, but starts no other.
        {{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}},
        {{"PMI_FD", "9"}},
        {{"WEFT_SECRET", "x"}, {"WEFT_ROOT_HOST", "node1"}},
        {{"RANK", ""}, {"WORLD_SIZE", ""}},
    };
    for (const Variables& variables : none) {
        FakeEnvironment environment(variables);
        CHECK(found_name() == "none");
    }
}

TEST_CASE("a part of a family's variables is an error that names the set and the missing ones", "[launcher_family]") {
    const auto check = [](const Variables& variables, const std::string& set, const std::string& missing) {
        const std::string begin = set + " is set but " + missing + " is not: ";
        CHECK(objection(variables).substr(0, begin.size()) == begin);
    };
    check({{"WEFT_RANK", "0"}}, "WEFT_RANK", "WEFT_SIZE, WEFT_UNIQUE_ID");
    check({{"RANK", "0"}}, "RANK", "WORLD_SIZE, MASTER_ADDR, MASTER_PORT");
    check({{"PMIX_NAMESPACE", "a"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
    check({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "PMI_RANK, PMI_SIZE", "PMI_FD");
    check({{"JOB_COMPLETION_INDEX", "0"}}, "JOB_COMPLETION_INDEX", "WEFT_SIZE");
    check({{"WEFT_SIZE", "4"}}, "WEFT_SIZE", "JOB_COMPLETION_INDEX");
}

TEST_CASE("the error names every missing variable of every launcher", "[launcher_family]") {
    for (const Case& each : cases()) {
        FakeEnvironment whole(each.variables);
        const Family family = **find_family();
        std::vector<std::string> needed{family.rank};
        if (*family.size) needed.push_back(family.size);
        for (const std::string& missing : needed) {
            INFO(each.launcher << " without " << missing);
            Variables variables = each.variables;
            variables.erase(missing);
            // Without any of its variables the launcher is not present.
            const std::string names =
                *family.variables ? family.variables : std::string(family.rank) + " " + family.size;
            if (std::none_of(variables.begin(), variables.end(),
                             [&](const auto& one) { return names.find(one.first) != std::string::npos; }))
                continue;
            CHECK(objection(variables).find(missing + " is not") != std::string::npos);
        }
    }
}

TEST_CASE("numbers of every launcher are checked", "[launcher_family]") {
    for (const Case& each : cases()) {
        FakeEnvironment whole(each.variables);
        const Family family = **find_family();
        for (const char* variable : {family.rank, family.size, family.local_rank}) {
            if (!each.variables.count(variable)) continue;
            for (const char* garbage : {"one", "1x", "-1", "1.0", " 1", "0x1", "99999999999"}) {
                INFO(each.launcher << ": " << variable << " is " << garbage);
                Variables variables = each.variables;
                variables[variable] = garbage;
                CHECK(objection(variables).rfind(std::string(variable) + " is `" + garbage + "`", 0) == 0);
            }
        }
        if (!*family.size) continue;
        Variables variables = each.variables;
        variables[family.size] = "3";
        CHECK(objection(variables).rfind(std::string(family.rank) + " is 3 and " + family.size + " is 3", 0) == 0);
        variables[family.size] = "0";
        CHECK(objection(variables).rfind(std::string(family.size) + " is `0`", 0) == 0);
    }
}

TEST_CASE("impossible local numbers are errors", "[launcher_family]") {
    Variables slurm = cases()[13].variables;
    REQUIRE(cases()[13].launcher == "srun");
    slurm["SLURM_LOCALID"] = "2";
    CHECK(objection(slurm).rfind("SLURM_LOCALID is 2 and SLURM_STEP_TASKS_PER_NODE[SLURM_NODEID] is 2", 0) == 0);
    slurm["SLURM_LOCALID"] = "1";
    slurm["SLURM_NODEID"] = "4";
    CHECK(objection(slurm).rfind("SLURM_NODEID is 4, but SLURM_STEP_TASKS_PER_NODE has 4 nodes", 0) == 0);
    slurm["SLURM_NODEID"] = "1";
    slurm["SLURM_STEP_TASKS_PER_NODE"] = "many";
    CHECK(objection(slurm).rfind("SLURM_STEP_TASKS_PER_NODE: `many`", 0) == 0);
    slurm["SLURM_STEP_TASKS_PER_NODE"] = "9(x2)";
    CHECK(objection(slurm).rfind("SLURM_STEP_TASKS_PER_NODE[SLURM_NODEID] is 9 and SLURM_STEP_NUM_TASKS is 8", 0) == 0);
    // A missing local number is unknown, and no error.
    slurm.erase("SLURM_NODEID");
    FakeEnvironment environment(slurm);
    const auto place = read_launched_rank(**find_family());
    REQUIRE(place);
    CHECK(place->local_size == -1);
}

TEST_CASE("a job's identity has the variables of its launcher's row, and nothing of a rank", "[launcher_family]") {
    const auto identity = [](Variables variables, const std::string& name, const std::string& value) {
        variables[name] = value;
        FakeEnvironment environment(variables);
        return family_identity(**find_family());
    };
    const Variables& torchrun = cases()[2].variables;
    CHECK(identity(torchrun, "RANK", "3") == identity(torchrun, "RANK", "4"));
    CHECK(identity(torchrun, "LOCAL_RANK", "3") == identity(torchrun, "LOCAL_RANK", "4"));
    for (const char* name : {"TORCHELASTIC_RUN_ID", "MASTER_PORT"})
        CHECK(identity(torchrun, name, "1") != identity(torchrun, name, "2"));
    // Each agent of a rendezvous counts for itself.
    CHECK(identity(torchrun, "TORCHELASTIC_RESTART_COUNT", "1") ==
          identity(torchrun, "TORCHELASTIC_RESTART_COUNT", "2"));
    const Variables& slurm = cases()[13].variables;
    CHECK(identity(slurm, "SLURM_PROCID", "3") == identity(slurm, "SLURM_PROCID", "4"));
    for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"})
        CHECK(identity(slurm, name, "1") != identity(slurm, name, "2"));
}
