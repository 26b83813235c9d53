// launcher_test.cpp: jobs of processes that find each other as under their launcher. Tested: the way the id travels,
// the derived id without one, and every rank's error.
#include "src/launchers/launcher.hpp"

#include <filesystem>
#include <memory>
#include <set>

#include "src/launchers/derived_id.hpp"
#include "tests/bootstrap/fake_environment.hpp"
#include "tests/bootstrap/fake_pmi.hpp"
#include "tests/bootstrap/fake_rendezvous.hpp"
#include "tests/bootstrap/fake_torch_store.hpp"
#include "tests/bootstrap/ranks.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// The fields that job_reader.cpp prints.
struct Found {
    std::vector<std::string> words;
    std::string log;
    bool failed() const { return words.at(0) == "failed"; }
    std::string error() const { return failed() ? words.at(1) : ""; }
    std::string sentence() const { return words.at(2); }
    std::string launcher() const { return words.at(0); }
    std::string numbers() const { return words.at(1) + " " + words.at(2) + " " + words.at(3) + " " + words.at(4); }
    std::string id() const { return words.at(5); }
    std::string root() const { return words.at(6); }
    int port() const { return std::stoi(words.at(7)); }
    std::string source() const { return words.at(8); }
};

std::unique_ptr<Subprocess> start(const Variables& variables) {
    const FakeEnvironment nothing_else{Variables{}};
    std::vector<std::string> texts;
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    return std::make_unique<Subprocess>(std::vector<std::string>{JOB_READER}, texts);
}

Found finish(Subprocess& process) {
    CHECK(process.wait() == 0);
    INFO(process.error());
    const Found found{lines_of(process.output()), process.error()};
    REQUIRE(found.words.size() >= 3);
    return found;
}

Found read(const Variables& variables) { return finish(*start(variables)); }

// All ranks at once, each with these variables and its own.
std::vector<Found> read_all(int ranks, const std::function<Variables(int rank)>& variables) {
    std::vector<std::unique_ptr<Subprocess>> processes;
    for (int rank = 0; rank < ranks; ++rank) processes.push_back(start(variables(rank)));
    std::vector<Found> all;
    for (auto& process : processes) all.push_back(finish(*process));
    return all;
}

// All found the same id, and no other job has it.
void check_one_job(const std::vector<Found>& all, const std::string& launcher, const std::string& source) {
    static std::set<std::string> seen;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        INFO(all[rank].words.at(2));
        REQUIRE(!all[rank].failed());
        CHECK(all[rank].launcher() == launcher);
        CHECK(all[rank].words.at(1) == std::to_string(rank));
        CHECK(all[rank].words.at(2) == std::to_string(all.size()));
        CHECK(all[rank].id() == all[0].id());
        CHECK(all[rank].root() == all[0].root());
        CHECK(all[rank].port() == all[0].port());
        CHECK(contains(all[rank].source(), source));
    }
    CHECK(seen.insert(all[0].id()).second);
}

Variables torchrun(int rank, int ranks, uint16_t port) {
    return {{"TORCHELASTIC_RUN_ID", "run"},       {"TORCHELASTIC_RESTART_COUNT", "0"},
            {"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(ranks)},
            {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
            {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port)}};
}

Variables with(Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) variables[name] = value;
    return variables;
}

// Two nodes with two tasks each.
Variables srun(int rank) {
    return {{"SLURM_JOB_ID", "12"},
            {"SLURM_STEP_ID", "0"},
            {"SLURM_PROCID", std::to_string(rank)},
            {"SLURM_STEP_NUM_TASKS", "4"},
            {"SLURM_LOCALID", std::to_string(rank % 2)},
            {"SLURM_NODEID", std::to_string(rank / 2)},
            {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
            {"SLURM_STEP_NODELIST", "gpu[01-02]"}};
}

}  // namespace

TEST_CASE("without a launcher a process is a job of one", "[launcher]") {
    const Found found = read({});
    CHECK(found.launcher() == "no launcher");
    CHECK(found.numbers() == "0 1 0 1");
    CHECK(found.id() != read({}).id());
}

TEST_CASE("services of Kubernetes that are named as Weft are one line of the log, and no options", "[launcher]") {
    const Variables services{{"WEFT_PORT", "tcp://10.0.0.1:80"},
                             {"WEFT_SERVICE_HOST", "10.0.0.1"},
                             {"WEFT_ROOT_PORT", "tcp://10.0.0.2:80"},
                             {"WEFT_ROOT_PORT_80_TCP_ADDR", "10.0.0.2"}};
    const Found quiet = read(services);
    REQUIRE(!quiet.failed());
    CHECK(quiet.log.empty());
    const Found told = read(with(services, {{"WEFT_DEBUG", "INFO"}, {"WEFT_DEBUG_SUBSYS", "ENV"}}));
    REQUIRE(!told.failed());
    for (const auto& [name, value] : services) CHECK(contains(told.log, name));
    CHECK(lines_of(told.log).size() == 1);
}

TEST_CASE("under torchrun the store hands out the id", "[launcher]") {
    FakeTorchStore store;
    for (int attempt = 0; attempt < 2; ++attempt)
        check_one_job(read_all(3, [&](int rank) { return torchrun(rank, 3, store.port()); }), "torchrun",
                      "the store at MASTER_ADDR");
    const auto plain = [&](int rank) {
        return Variables{{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "localhost"},
                         {"MASTER_PORT", std::to_string(store.port())}};
    };
    check_one_job(read_all(2, plain), "env://", "the store at MASTER_ADDR");
    CHECK(read_all(2, plain)[0].numbers() == "0 2 -1 -1");
}

TEST_CASE("under torchrun without a store all ranks derive one id, and those of another job another", "[launcher]") {
    const DesertedPort deserted, another;
    const uint16_t port = deserted.number();
    const auto all = read_all(2, [&](int rank) { return torchrun(rank, 2, port); });
    check_one_job(all, "torchrun", "the job's identity, as no process serves PyTorch's store at 127.0.0.1:");
    CHECK(all[0].root() == "");
    CHECK(!contains(all[0].log, "WARN"));  // nobody else can come where they meet
    for (const Variables& other : {Variables{{"TORCHELASTIC_RUN_ID", "other"}}, Variables{{"WEFT_SECRET", "s"}},
                                   Variables{{"MASTER_PORT", std::to_string(another.number())}}}) {
        const Found found = read(with(torchrun(1, 2, port), other));
        REQUIRE(!found.failed());
        CHECK(found.id() != all[0].id());
    }
    CHECK(read(with(torchrun(1, 2, port), {{"TORCHELASTIC_RESTART_COUNT", "1"}})).id() == all[0].id());
}

// As two agents do: one worker of the second fails, both restart theirs, and the second alone counts that. The store and
// MASTER_PORT stay.
TEST_CASE("workers of two torchrun agents find each other again after a restart that one agent counts", "[launcher]") {
    FakeTorchStore store;
    const auto worker = [&](int rank, int restarts) {
        return with(torchrun(rank, 4, store.port()), {{"LOCAL_RANK", std::to_string(rank % 2)},
                                                      {"LOCAL_WORLD_SIZE", "2"},
                                                      {"GROUP_RANK", std::to_string(rank / 2)},
                                                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                      {"TORCHELASTIC_RESTART_COUNT", std::to_string(restarts)}});
    };
    // Workers fail before, between and after what they say to the store; the agents end the others.
    const std::vector<std::vector<int>> attempts{{1, 2}, {0, 1, 2}, {0, 3}};
    for (const std::vector<int>& came : attempts) {
        std::vector<std::unique_ptr<Subprocess>> workers;
        for (const int rank : came) workers.push_back(start(worker(rank, 0)));
        for (const int rank : came) {
            if (rank == 0) continue;
            const bool rank_0 = came[0] == 0;
            REQUIRE(store.await("/rank " + std::to_string(rank), rank_0 ? "has " : "asks "));
        }
        for (auto& each : workers) kill(each->pid(), SIGKILL);
        for (auto& each : workers) (void)each->wait();
    }
    for (int restarts = 1; restarts <= 2; ++restarts)
        check_one_job(read_all(4, [&](int rank) { return worker(rank, rank < 2 ? 0 : restarts); }), "torchrun",
                      "the store at MASTER_ADDR");
}

TEST_CASE("on several hosts a derived id says where rank 0 is, and asks for a secret", "[launcher]") {
    const DesertedPort deserted;
    const uint16_t port = deserted.number();
    const Variables spread{{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}};
    // Not a host that we could ask for the store.
    const auto all = read_all(2, [&](int rank) {
        return with(srun(rank), {{"SLURM_STEP_NUM_TASKS", "2"},
                                 {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                 {"SLURM_NODEID", std::to_string(rank)},
                                 {"SLURM_LOCALID", "0"}});
    });
    check_one_job(all, "srun", "the job's identity");
    for (const Found& found : all) {
        CHECK(found.root() == "gpu01");
        CHECK(found.port() >= 20000);
        CHECK(found.port() <= 29999);
        CHECK(contains(found.log, "WARN srun carries no unique id"));
    }
    const Found secret =
        read(with(torchrun(1, 2, port),
                  with(spread, {{"WEFT_SECRET", "s"}, {"WEFT_ROOT_PORT", "4321"}, {"WEFT_ROOT_HOST", "node7"}})));
    CHECK(!contains(secret.log, "WARN"));
    CHECK(secret.root() == "node7");
    CHECK(secret.port() == 4321);
    const Found master = read(with(torchrun(1, 2, port), spread));
    CHECK(master.root() == "127.0.0.1");
    CHECK(!contains(master.log, "WARN"));  // that address is this host's alone
}

TEST_CASE("srun: all ranks of a step derive one id, those of another step another", "[launcher]") {
    check_one_job(read_all(4, srun), "srun", "the job's identity");
    CHECK(read(srun(3)).numbers() == "3 4 1 2");
    std::set<std::string> ids{read(srun(0)).id()};
    std::set<int> ports{read(srun(0)).port()};
    for (const Variables& other : {Variables{{"SLURM_JOB_ID", "13"}}, Variables{{"SLURM_STEP_ID", "1"}},
                                   Variables{{"SLURM_RESTART_COUNT", "1"}}}) {
        const Found found = read(with(srun(0), other));
        CHECK(ids.insert(found.id()).second);
        CHECK(ports.insert(found.port()).second);  // so they can run on one host at a time
    }
}

TEST_CASE("srun without variables for rank 0's host names the variable to set", "[launcher]") {
    Variables variables = srun(1);
    variables.erase("SLURM_STEP_NODELIST");
    const Found missing = read(variables);
    CHECK(missing.error() == "launcher.root-host");
    CHECK(contains(missing.sentence(), "set WEFT_ROOT_HOST"));
    CHECK(read(with(variables, {{"WEFT_ROOT_HOST", "gpu01"}})).root() == "gpu01");
    const Found garbage = read(with(variables, {{"SLURM_STEP_NODELIST", "gpu[1"}}));
    CHECK(garbage.error() == "launcher.variables");
    CHECK(contains(garbage.sentence(), "SLURM_STEP_NODELIST: `gpu[1`"));
    const Found lengthy = read(with(variables, {{"WEFT_ROOT_HOST", std::string(100, 'n')}}));
    CHECK(lengthy.error() == "launcher.root-host");
    CHECK(contains(lengthy.sentence(), " 100 "));
}

TEST_CASE("under Horovod the rendezvous server passes on the id", "[launcher]") {
    FakeRendezvous rendezvous;
    check_one_job(read_all(3,
                           [&](int rank) {
                               return Variables{{"HOROVOD_RANK", std::to_string(rank)},
                                                {"HOROVOD_SIZE", "3"},
                                                {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                                                {"HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(rendezvous.port())}};
                           }),
                  "Horovod", "Horovod's rendezvous server");
}

TEST_CASE("under PMI the launcher's server passes on the id", "[launcher]") {
    for (const int version : {1, 2}) {
        FakePmi server(3, {version});
        check_one_job(read_all(3,
                               [&](int rank) {
                                   // A duplicate for the child; the test's descriptors close on exec.
                                   static std::vector<Fd> inherited;
                                   const int descriptor = inherited.emplace_back(dup(server.descriptor(rank))).number();
                                   return Variables{{"PMI_RANK", std::to_string(rank)},
                                                    {"PMI_SIZE", "3"},
                                                    {"PMI_FD", std::to_string(descriptor)},
                                                    {"MPI_LOCALRANKID", std::to_string(rank)},
                                                    {"MPI_LOCALNRANKS", "3"}};
                               }),
                      "MPICH", "the launcher's PMI server");
    }
}

TEST_CASE("without PMI, ranks of one host still know their job, and others get the remedy", "[launcher]") {
    const Variables closed{
        {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "987654"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
    const Found alone = read(closed);
    CHECK(alone.error() == "launcher.secret");
    CHECK(contains(alone.sentence(), "PMI_FD 987654"));
    CHECK(contains(alone.sentence(), "set WEFT_SECRET"));
    const Found intel = read(with(closed, {{"I_MPI_HYDRA_UUID", "4b"}}));
    REQUIRE(!intel.failed());
    CHECK(intel.source() == "the job's identity, as PMI_FD 987654 is closed in this process, or no socket");
    const Found spread = read(with(closed, {{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}}));
    CHECK(spread.error() == "launcher.root-host");
    CHECK(read(with(closed, {{"PMI_FD", "nine"}})).error() == "launcher.variables");
}

TEST_CASE("under Open MPI the PMIx server passes on the id", "[launcher]") {
    const std::filesystem::path store =
        std::filesystem::temp_directory_path() / ("weft_launcher_test_" + std::to_string(getpid()));
    const auto pmix = [&](int rank) {
        return Variables{{"PMIX_RANK", std::to_string(rank)},
                         {"PMIX_NAMESPACE", "fake@1"},
                         {"WEFT_PMIX_LIBRARY", FAKE_PMIX},
                         {"WEFT_TEST_PMIX_STORE", store}};
    };
    check_one_job(read_all(2,
                           [&](int rank) {
                               return with(pmix(rank), {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                                        {"OMPI_COMM_WORLD_SIZE", "2"}});
                           }),
                  "Open MPI", "the launcher's PMIx server");
    std::filesystem::remove(store);
    // If the variables have no number of ranks, the server has it.
    const auto all = read_all(2, pmix);
    check_one_job(all, "PMIx", "the launcher's PMIx server");
    CHECK(all[1].numbers() == "1 2 1 2");
    std::filesystem::remove(store);
    const Found wrong = read(with(pmix(0), {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}}));
    std::filesystem::remove(store);
    CHECK(wrong.error() == "launcher.lost");
    CHECK(contains(wrong.sentence(), "rank 0 of 3"));
    CHECK(contains(wrong.sentence(), "2 ranks"));
}

TEST_CASE("a left-over RANK and WORLD_SIZE are ignored under mpirun with a warning that names both launchers",
          "[launcher]") {
    const std::filesystem::path store =
        std::filesystem::temp_directory_path() / ("weft_launcher_test_" + std::to_string(getpid()));
    const Variables alone{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29999"}};
    for (const Variables& left_over : {alone, Variables{{"WORLD_SIZE", "1"}}}) {
        const auto all = read_all(2, [&](int rank) {
            return with(left_over, {{"PMIX_RANK", std::to_string(rank)},
                                    {"PMIX_NAMESPACE", "fake@1"},
                                    {"WEFT_PMIX_LIBRARY", FAKE_PMIX},
                                    {"WEFT_TEST_PMIX_STORE", store},
                                    {"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                    {"OMPI_COMM_WORLD_SIZE", "2"}});
        });
        std::filesystem::remove(store);
        check_one_job(all, "Open MPI", "the launcher's PMIx server");
        for (const Found& found : all) {
            CHECK(contains(found.log, " WARN "));
            CHECK(contains(found.log, "env://"));
            CHECK(contains(found.log, "Open MPI"));
        }
    }
}

TEST_CASE("a pod of an Indexed Job finds pod 0 by its own name, or gets the name of the missing variable",
          "[launcher]") {
    CHECK(first_pod("train-3", 3) == "train-0");
    CHECK(first_pod("train-workers-0-12.train.default.svc.cluster.local", 12) ==
          "train-workers-0-0.train.default.svc.cluster.local");
    CHECK(first_pod("train-3", 4) == "");
    CHECK(first_pod("train-13", 3) == "");
    CHECK(first_pod("-3", 3) == "");
    CHECK(first_pod("", 0) == "");
    // This host is no pod 123456.
    const Variables pod{{"JOB_COMPLETION_INDEX", "123456"}, {"WEFT_SIZE", "200000"}};
    const Found unknown = read(pod);
    CHECK(unknown.error() == "launcher.root-host");
    CHECK(contains(unknown.sentence(), "set WEFT_ROOT_HOST"));
    const Found named = read(with(pod, {{"WEFT_ROOT_HOST", "train-0.train"}}));
    REQUIRE(!named.failed());
    CHECK(named.numbers() == "123456 200000 0 1");
    CHECK(named.root() == "train-0.train");
    CHECK(contains(named.log, "WARN"));
}

TEST_CASE("rank, size, rank 0's host and a secret may be set by hand", "[launcher]") {
    const auto by_hand = [](int rank) {
        return Variables{{"WEFT_RANK", std::to_string(rank)},
                         {"WEFT_SIZE", "2"},
                         {"WEFT_ROOT_HOST", "node1"},
                         {"WEFT_SECRET", "by hand"}};
    };
    const auto all = read_all(2, by_hand);
    check_one_job(all, "weft run", "the job's identity, as WEFT_UNIQUE_ID is not set");
    CHECK(all[0].root() == "node1");
    Variables open = by_hand(0);
    open.erase("WEFT_SECRET");
    const Found refused = read(open);
    CHECK(refused.error() == "launcher.secret");
}

TEST_CASE("with WEFT_SECRET a reader of the id in the store does not know the job's secret", "[launcher]") {
    FakeTorchStore store;
    const auto all = read_all(2, [&](int rank) {
        return with(torchrun(rank, 2, store.port()), {{"WEFT_SECRET", rank == 0 ? "right" : "wrong"}});
    });
    CHECK(all[0].id() != all[1].id());
    const auto same = read_all(2, [&](int rank) {
        return with(torchrun(rank, 2, store.port()), {{"WEFT_SECRET", "right"}});
    });
    check_one_job(same, "torchrun", "the store at MASTER_ADDR");
}

TEST_CASE("the key of WEFT_SECRET depends on the secret and on the id", "[launcher]") {
    const UniqueId one = UniqueId::derive("job 1"), other = UniqueId::derive("job 2");
    const auto proof = [](const UniqueId& id, const std::string& secret) {
        const auto keyed = id.keyed(secret);
        REQUIRE(keyed);
        return keyed->prove("test", 4);
    };
    const Digest first = proof(one, "right");
    CHECK(first == proof(one, "right"));
    CHECK(first != proof(one, "wrong"));
    CHECK(first != proof(other, "right"));
    CHECK(first != one.prove("test", 4));
    // Argon2id of libsodium's interactive limits: a weaker hash would be a mistake that no other test finds.
    const auto key = net::key_of_password("password", net::Digest{1, 2, 3});
    REQUIRE(key);
    CHECK(fmt::format("{:02x}{:02x}{:02x}{:02x}", (*key)[0], (*key)[1], (*key)[2], (*key)[3]) == "bbb1d14b");
}

TEST_CASE("a job of one asks no server", "[launcher]") {
    const Variables jobs[] = {
        torchrun(0, 1, 1),
        {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PMI_FD", "987654"}},
        {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
        {{"JOB_COMPLETION_INDEX", "0"}, {"WEFT_SIZE", "1"}},
        {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
    };
    for (const Variables& job : jobs) {
        const Found found = read(job);
        INFO(found.words.at(2));
        REQUIRE(!found.failed());
        CHECK(found.numbers() == "0 1 0 1");
        CHECK(found.source() == "this rank itself");
    }
}

TEST_CASE("the user gets the error of the step that failed", "[launcher]") {
    const TcpServer hanging([](const Line& line) { line.hang(); });
    CHECK(with_growing_limit(100, [&](int64_t limit_ms) {
              const std::string limit = std::to_string(limit_ms);
              const Found late = read(with(torchrun(1, 2, hanging.port()), {{"WEFT_INIT_TIMEOUT_MS", limit}}));
              CHECK(late.error() == "launcher.timeout");
              const bool named = contains(late.sentence(), limit + " ms for rank 0's unique id");
              return named ? "" : late.sentence();
          }) == "");
    // A store with another text in place of the id.
    const TcpServer nonsense([](const Line& line) {
        line.bytes(5);
        line.bytes(1 + 8), read_text(line);
        line.send(std::string(1, '\1'));
        line.bytes(1), read_text(line), read_text(line);
        line.bytes(1 + 8), read_text(line);
        line.send(std::string(1, '\0'));
        line.bytes(1), read_text(line);
        line.send(raw(uint64_t(5)) + "12345");
        line.hang();
    });
    const Found wrong = read(torchrun(1, 2, nonsense.port()));
    CHECK(wrong.error() == "launcher.variables");
    CHECK(contains(wrong.sentence(), "the store at MASTER_ADDR"));
    for (const char* port : {"0", "65536", "http", "-1"}) {
        const Found refused = read(with(torchrun(1, 2, 1), {{"MASTER_PORT", port}}));
        CHECK(refused.error() == "launcher.variables");
        CHECK(contains(refused.sentence(), "MASTER_PORT is `" + std::string(port) + "`"));
    }
    CHECK(read({{"RANK", "0"}}).error() == "launcher.variables");
}

TEST_CASE("a derived port depends on the job, and is never the taken one", "[launcher]") {
    std::set<int> ports;
    for (int job = 0; job < 200; ++job) {
        const uint16_t port = derived_port("job " + std::to_string(job), 0);
        CHECK(port >= 20000);
        CHECK(port <= 29999);
        CHECK(port == derived_port("job " + std::to_string(job), 29500));
        ports.insert(port);
        const uint16_t other = derived_port("job " + std::to_string(job), port);
        CHECK(other != port);
        CHECK(other >= 20000);
        CHECK(other <= 29999);
    }
    CHECK(ports.size() > 180);  // of 10,000: two or so coincide
}
