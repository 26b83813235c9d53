// worker_families.cpp: steps of a worker that make communicators from its own.
#include <fstream>

#include "tests/faults/worker.hpp"

namespace worker {

static void become_child(Worker& self, weftComm_t child) {
    self.parents.push_back(self.comm);
    self.comm = child;
    if (!child) return;
    (void)weftCommUserRank(child, &self.rank);
    (void)weftCommCount(child, &self.ranks);
}
// split=COLOR[,KEY[,DEADLINE in ms]]: from here on the child is the communicator
void step_split(Worker& self, const Values& values) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.initTimeoutMs = number(values, 2, -1);
    weftComm_t child = nullptr;
    const weftResult_t code =
        weftCommSplit(self.comm, int(number(values, 0, 0)), int(number(values, 1, 0)), &child, &config);
    tell("split", code);
    if (code == weftSuccess) become_child(self, child);
}
// shrink=FLAGS,RANK[,RANK...]: likewise, without these ranks
void step_shrink(Worker& self, const Values& values) {
    std::vector<int> excluded;
    for (size_t i = 1; i < values.size(); ++i) excluded.push_back(int(number(values, i, 0)));
    weftComm_t child = nullptr;
    const weftResult_t code = weftCommShrink(self.comm, excluded.data(), int(excluded.size()), &child, nullptr,
                                             int(number(values, 0, WEFT_SHRINK_DEFAULT)));
    tell("shrink", code);
    if (code == weftSuccess) become_child(self, child);
}
void step_back(Worker& self, const Values&) {
    const weftComm_t parent = self.parents.back();
    self.parents.pop_back();
    become_child(self, parent);
    self.parents.pop_back();
}
// destroy_parent: of the communicator, which lives on
void step_destroy_parent(Worker& self, const Values&) {
    tell("destroy_parent", weftCommDestroy(self.parents.back()));
    self.parents.pop_back();
}
static long resident_kib() {
    std::ifstream file("/proc/self/statm");
    long size = 0, resident = 0;
    file >> size >> resident;
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}
// births=TIMES,COUNT: as often a split into halves, a sum in there, its end; then how much memory most of them cost
void step_births(Worker& self, const Values& values) {
    const long times = number(values, 0, 1), count = number(values, 1, 1);
    weftResult_t code = weftSuccess;
    long before = 0;
    for (long i = 0; code == weftSuccess && i < times; ++i) {
        if (i == times / 4) before = resident_kib();
        Worker child;
        code = weftCommSplit(self.comm, self.rank % 2, -self.rank, &child.comm, nullptr);
        if (code != weftSuccess) break;
        (void)weftCommUserRank(child.comm, &child.rank);
        (void)weftCommCount(child.comm, &child.ranks);
        code = reduce(child, size_t(count), weftInt32, weftSum);
        const weftResult_t ended = weftCommDestroy(child.comm);
        if (code == weftSuccess) code = ended;
    }
    tell("births", code);
    tell("grown " + std::to_string(resident_kib() - before));
}

}  // namespace worker
