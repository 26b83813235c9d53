// buffer_registry_test.cpp: the mappings that a rank keeps of registered memory, if another process cannot map the
// tables in which ranks reply.
#include "src/gpu/domain/buffer_registry.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "src/base/process_token.hpp"
#include "src/segment/liveness.hpp"
#include "tests/drivers/fake.hpp"
#include "tests/open_descriptors.hpp"

namespace weft::internal::test {

namespace {

using namespace cuda;

// Rank 1, which takes its steps on request, and never ends by itself.
[[noreturn]] void be_other_process(std::shared_ptr<Segment> group, std::shared_ptr<const KernelSet> kernels, int told,
                                   int tells) {
    char step = 0;
    if (!Liveness(*group).claim(1)) _exit(1);
    BufferRegistry registrations(std::move(group), 1, std::move(kernels));
    if (write(tells, &step, 1) != 1 || read(told, &step, 1) != 1) _exit(1);
    const rlimit limit{0, 0};  // the soft one alone would be raised
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(1);
    registrations.open();
    if (write(tells, &step, 1) != 1) _exit(1);
    for (;;) pause();
}

}  // namespace

TEST_CASE("descriptors of registered memory are closed when the last process reports that it never maps it",
          "[registrations]") {
    auto group = take(Segment::create(2));
    for (int rank = 0; rank < 2; ++rank) {
        demand(group->back_rows(rank, 1));
        group->row(rank).process = process_token() + uint64_t(rank);
    }
    const Driver& driver = *take(Driver::get());
    const auto kernels = take(KernelSet::of_device(driver, 0));
    int to[2], from[2];
    REQUIRE(pipe2(to, O_CLOEXEC) == 0);
    REQUIRE(pipe2(from, O_CLOEXEC) == 0);
    const Fd told(to[0]), tell(to[1]), hear(from[0]), tells(from[1]);
    const pid_t other = fork();
    if (other == 0) be_other_process(group, kernels, told.number(), tells.number());
    char step = 0;
    REQUIRE(read(hear.number(), &step, 1) == 1);
    REQUIRE(Liveness(*group).alive(1));
    {
        BufferRegistry registrations(group, 0, kernels);
        registrations.open();
        const VmmMemory memory = take(VmmMemory::allocate(kernels->context(), 1000));
        const int entry = take(registrations.add(memory.data(), 1000, BufferRegistry::RegistrationUse::buffer));
        const size_t posted = open_descriptors();
        // It may come to have the tables, and ask.
        registrations.look();
        CHECK(open_descriptors() == posted);
        REQUIRE(write(tell.number(), &step, 1) == 1);
        REQUIRE(read(hear.number(), &step, 1) == 1);
        registrations.look();
        CHECK(open_descriptors() == posted - 1);
        demand(registrations.remove(entry, BufferRegistry::RegistrationUse::buffer));
    }
    kill(other, SIGKILL);
    REQUIRE(waitpid(other, nullptr, 0) == other);
}

}  // namespace weft::internal::test
