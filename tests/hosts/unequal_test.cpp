// unequal_test.cpp: a job whose hosts believe to be different machines and run different builds. Each choice that all
// ranks must share follows from facts that all ranks know.
#include <fstream>

#include "src/registry.hpp"
#include "src/selector/tuning_file.hpp"
#include "src/selector/tuning_text.hpp"
#include "tests/folder.hpp"
#include "tests/hosts/spread_job.hpp"
#include "topology/detect/container.hpp"

using namespace weft::internal::test;

namespace {

// Two packages with a NIC each, and one of another maker with a slower one.
const char* const large_machine = R"(<system version="1">
  <cpu numaid="0" affinity="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:31:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="8">
      <nic><net name="eth7" dev="0" speed="100000" port="1" guid="0x1" maxconn="131072" gdr="0"/></nic>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="fffffffe" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:b1:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="8">
      <nic><net name="eth8" dev="1" speed="100000" port="1" guid="0x2" maxconn="131072" gdr="0"/></nic>
    </pci>
  </cpu>
</system>)";
const char* const small_machine = R"(<system version="1">
  <cpu numaid="0" affinity="ffffffff" arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="1">
    <nic><net name="eth9" dev="0" speed="10000" port="0" gdr="0"/></nic>
  </cpu>
</system>)";

// Made-up times of rings and trees on hosts of one machine: both are chosen, each for some sizes.
std::string tuning_text(int ranks, int hosts) {
    weft::internal::Tuning tuning = weft::internal::tuning_of_here();
    tuning.cores = weft::internal::topology::usable_cores();
    for (const weft::internal::Algorithm& row : weft::internal::registry::algorithms())
        if (!row.refusal(weft::internal::layout_in_blocks(ranks, hosts)))
            tuning.curves.push_back(
                {row.collective,
                 row.name,
                 ranks,
                 hosts,
                 {{8, 40.0 + double(tuning.curves.size() % 7)}, {100'000, 900.0 - double(tuning.curves.size() % 5)}}});
    return tuning_text(tuning);
}

int count(const std::string& text, const std::string& line) {
    int found = 0;
    for (const std::string& each : lines_of(text)) found += each == line;
    return found;
}

}  // namespace

TEST_CASE("hosts of other machines, libraries and settings run every collective and choose alike", "[unequal]") {
    const Folder folder;
    const auto file = [&](const char* name, const std::string& text) {
        std::ofstream(folder.path / name) << text;
        return (folder.path / name).string();
    };
    const std::string topo = "WEFT_TOPO_FILE=";
    const std::vector<std::string> of_host[] = {
        {topo + file("large.xml", large_machine), "WEFT_DEBUG=INFO", "WEFT_DEBUG_SUBSYS=INIT,ALGO"},
        {topo + file("small.xml", small_machine), "WEFT_HWLOC_LIBRARY=none", "WEFT_CUDA_LIBRARY=none",
         "WEFT_NVML_LIBRARY=none", "WEFT_ISA=plain", "WEFT_STREAMING_BYTES=0"},
        // Requests that rank 0's count for, and a file that only its own would count for.
        {"WEFT_CROSS_MEMORY=1", "WEFT_TILE_BYTES=4096", "WEFT_ALGO=linear,ring", "WEFT_CHANNELS=2",
         "WEFT_TUNE_FILE=/nonexistent"}};
    const std::string tuned = "WEFT_TUNE_FILE=" + file("tune.json", tuning_text(6, 3));
    const char* const names[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                 "reduce_scatter", "all_to_all", "gather", "scatter"};
    const std::vector<int> counts = {1, 1000, small() ? 20'000 : 300'000};
    Steps steps{"init"};
    for (const char* name : names)
        for (const int elements : counts)
            steps.push_back("call=" + std::string(name) + ',' + std::to_string(elements) + ",3");
    for (const std::string& algo : {std::string(), std::string("ring"), tuned}) {
        SpreadJob job(3, 2);
        for (int rank = 0; rank < 6; ++rank) {
            Steps all = steps;
            all.insert(all.end(), {"split=" + std::to_string(rank % 2), "loop=30000,3", "destroy_parent", "destroy"});
            std::vector<std::string> variables = of_host[job.host_of(rank)];
            if (job.host_of(rank) == 0 && algo == "ring") variables.push_back("WEFT_ALGO=ring");
            if (rank == 0 && algo == tuned) variables.push_back(tuned);
            job.start(rank, all, variables);
        }
        job.finish();
        INFO("`" << algo << "`\n" << job.everything());
        for (int rank = 0; rank < 6; ++rank) {
            CHECK(count(job[rank].output(), "call 0") == int(std::size(names) * counts.size()));
            for (const char* call : {"init", "split", "loop", "destroy"}) CHECK(job.answer(rank, call) == "0");
        }
        const std::string told = job[0].error();
        CHECK(contains(told, "3 kinds of machines"));
        if (algo == "ring") CHECK(contains(told, ": ring over shm+tcp"));
        CHECK(contains(told, " us measured") == (algo == tuned));
    }
}
