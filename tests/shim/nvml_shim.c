/* A small libnvidia-ml.so.1 for machines without a GPU, so that tests exercise the real pynvml.
 *
 * The file named by BERTH_NVML_SCENARIO (scenario.h tells how it is written) is read again at every call, so a test can
 * change the world under a running process. A file that is not there is a driver that is not loaded; one that cannot be
 * read is an unknown error, and standard error tells the line. Nothing here is copied from NVIDIA; prototypes follow what
 * pynvml passes, and behaviour the NVML API reference (docs.nvidia.com/deploy/nvml-api).
 */

#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include "scenario.h"

typedef char *handle;   /* points into `handles`: its offset is the index; or into `part_handles` */
typedef char *instance; /* points into `instances`, at the place of the MIG device that it carries */

static char handles[MAX_DEVICES], part_handles[MAX_DEVICES * MAX_PARTS], instances[MAX_DEVICES * MAX_PARTS], computes[MAX_DEVICES * MAX_PARTS];
static int initialised; /* times, as in NVML: only the first start reaches the driver, only the last stop leaves it */
static long booted;     /* of the driver that was there at the first start */

static status load(struct scenario *found) {
    const char *path = getenv("BERTH_NVML_SCENARIO");
    int bad = scenario_of(path, found);
    if (bad > 0) fprintf(stderr, "%s: line %d cannot be read\n", path, bad);
    return bad == 0 ? SUCCESS : bad < 0 ? DRIVER_NOT_LOADED : UNKNOWN;
}

/* The line of a scenario that cannot be read; 0 where all can be, -1 where there is no such file or stage. */
int berth_scenario_error(const char *path) {
    static struct scenario found;
    return scenario_of(path, &found);
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_ms(long duration) {
    struct timespec step = {duration / 1000, (duration % 1000) * 1000000L};
    nanosleep(&step, NULL);
}

static const struct rule *rule_of(const struct rules *rules, const char *function, enum deed deed) {
    for (int i = 0; i < rules->count; i++)
        if (rules->all[i].deed == deed && strcmp(rules->all[i].function, function) == 0) return &rules->all[i];
    return NULL;
}

/* What a call meets: the scenario now (`*found`), its hangs, its crash, its failures. `index` is a device's, or -1.
 * A call that hangs comes back when the scenario no longer says so, but never into another boot of the driver. */
static status meet(const char *function, long index, struct scenario *found) {
    long began = now_ms(), hung = 0, boot = 0;
    for (;;) {
        status result = load(found);
        if (hung && (result != SUCCESS || found->boot != boot)) {
            pause_ms(10);
            continue;
        }
        if (result != SUCCESS) return result;
        if (index >= 0 && (unsigned int)index >= found->count) return INVALID_ARGUMENT;
        const struct rules *own = index >= 0 ? &found->devices[index].rules : &found->rules;
        const struct rule *hang = rule_of(own, function, HANG), *fail = rule_of(own, function, FAIL);
        if (hang == NULL && index >= 0) hang = rule_of(&found->rules, function, HANG);
        if (fail == NULL && index >= 0) fail = rule_of(&found->rules, function, FAIL);
        if (rule_of(own, function, CRASH) != NULL) abort();
        if (hang == NULL || (hang->ms >= 0 && now_ms() - began >= hang->ms)) return fail != NULL ? fail->error : SUCCESS;
        hung = 1;
        boot = found->boot;
        pause_ms(10);
    }
}

static status driver_call(const char *function, struct scenario *found) {
    if (!initialised) return UNINITIALIZED;
    status result = meet(function, -1, found);
    return result == SUCCESS && found->boot != booted ? UNKNOWN : result;
}

/* A call for a device, or for a MIG device where `part` is asked for and the handle is one's. */
static status call(const char *function, handle given, struct scenario *all, struct device **device, struct part **part) {
    if (!initialised) return UNINITIALIZED;
    ptrdiff_t index = given - handles, place = given - part_handles;
    int is_part = given != NULL && place >= 0 && place < (ptrdiff_t)sizeof part_handles;
    if (is_part) index = place / MAX_PARTS;
    if (given == NULL || index < 0 || index >= MAX_DEVICES || (is_part && part == NULL)) return INVALID_ARGUMENT;
    status result = meet(function, (long)index, all);
    if (result == SUCCESS && all->boot != booted) result = UNKNOWN;
    if (result != SUCCESS) return result;
    *device = &all->devices[index];
    if ((*device)->error != SUCCESS) return (*device)->error;
    if (part == NULL) return SUCCESS;
    *part = NULL;
    if (!is_part) return SUCCESS;
    if (place % MAX_PARTS >= (*device)->part_count) return NOT_FOUND;
    *part = &(*device)->parts[place % MAX_PARTS];
    return (*part)->error;
}

#define DEVICE_CALL(PART)                                                           \
    struct scenario all;                                                            \
    struct device *found = NULL;                                                    \
    struct part *part = NULL;                                                       \
    (void)part;                                                                     \
    status result = call(__func__, device, &all, &found, PART);                     \
    if (result != SUCCESS) return result

static status copy(const char *text, char *into, unsigned int size) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(into, text);
    return SUCCESS;
}

/* ---- the library and the driver ---- */

status nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    struct scenario all;
    status result = meet(__func__, -1, &all);
    if (result == SUCCESS && initialised++ == 0) booted = all.boot;
    return result;
}

status nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

status nvmlShutdown(void) {
    if (!initialised) return UNINITIALIZED;
    struct scenario all;
    status result = meet(__func__, -1, &all);
    initialised--;
    return result;
}

const char *nvmlErrorString(status code) {
    for (size_t i = 0; i < ERRORS; i++)
        if (errors[i].code == code) return errors[i].words;
    return "Unknown Error";
}

status nvmlDeviceGetCount_v2(unsigned int *count) {
    struct scenario all;
    status result = driver_call(__func__, &all);
    if (result == SUCCESS) *count = all.count;
    return result;
}

status nvmlDeviceGetHandleByIndex_v2(unsigned int index, handle *device) {
    if (index >= MAX_DEVICES) return INVALID_ARGUMENT;
    struct scenario all;
    struct device *found = NULL;
    status result = call(__func__, &handles[index], &all, &found, NULL);
    if (result == SUCCESS) *device = &handles[index];
    return result;
}

/* ---- one device ---- */

status nvmlDeviceGetUUID(handle device, char *uuid, unsigned int size) {
    DEVICE_CALL(&part);
    return copy(part ? part->uuid : found->uuid, uuid, size);
}

status nvmlDeviceGetName(handle device, char *name, unsigned int size) {
    DEVICE_CALL(&part);
    char whole[160];
    snprintf(whole, sizeof whole, part ? "%s MIG %s" : "%s", found->name, part ? part->profile : "");
    return copy(whole, name, size);
}

struct memory {
    big total, free, used;
};

static big left(big total, big used) { return total > used ? total - used : 0; }

status nvmlDeviceGetMemoryInfo(handle device, struct memory *memory) {
    DEVICE_CALL(&part);
    memory->total = part ? part->total : found->total;
    memory->used = part ? part->used : found->used;
    memory->free = left(memory->total, memory->used);
    return SUCCESS;
}

struct memory_v2 {
    unsigned int version;
    big total, reserved, free, used;
};

status nvmlDeviceGetMemoryInfo_v2(handle device, struct memory_v2 *memory) {
    DEVICE_CALL(&part);
    if (memory->version != (sizeof *memory | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    memory->total = part ? part->total : found->total;
    memory->used = part ? part->used : found->used;
    memory->free = left(memory->total, memory->used);
    memory->reserved = 0;
    return SUCCESS;
}

struct utilisation {
    unsigned int gpu, memory;
};

/* Not for a card that is divided by MIG, nor for its parts. */
status nvmlDeviceGetUtilizationRates(handle device, struct utilisation *rates) {
    DEVICE_CALL(&part);
    if (part || (found->has_mig && found->mig[0])) return NOT_SUPPORTED;
    rates->gpu = found->utilisation;
    rates->memory = found->traffic;
    return SUCCESS;
}

status nvmlDeviceGetTemperature(handle device, int sensor, unsigned int *degrees) {
    DEVICE_CALL(NULL);
    if (sensor != 0) return INVALID_ARGUMENT;
    *degrees = found->temperature;
    return SUCCESS;
}

struct process_info {
    unsigned int pid;
    big memory;
    unsigned int gi, ci;
};

static status list(const struct device *device, int graphics, unsigned int *count, struct process_info *infos) {
    unsigned int number = 0, room = *count;
    for (int i = 0; i < device->process_count; i++) {
        if (device->processes[i].graphics != graphics) continue;
        if (number < room && infos != NULL)
            infos[number] = (struct process_info){device->processes[i].pid, device->processes[i].memory, ~0U, ~0U};
        number++;
    }
    *count = number;
    return number > room ? INSUFFICIENT_SIZE : SUCCESS;
}

status nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned int *count, struct process_info *infos) {
    DEVICE_CALL(NULL);
    return list(found, 0, count, infos);
}

status nvmlDeviceGetGraphicsRunningProcesses_v3(handle device, unsigned int *count, struct process_info *infos) {
    DEVICE_CALL(NULL);
    return list(found, 1, count, infos);
}

struct process_sample {
    unsigned int pid;
    big stamp;
    unsigned int util, traffic, encoder, decoder;
};

/* Samples newer than a stamp, of programs that have any: a new one at every call. */
status nvmlDeviceGetProcessUtilization(handle device, struct process_sample *samples, unsigned int *count, big since) {
    DEVICE_CALL(NULL);
    if (!found->has_samples) return NOT_SUPPORTED;
    unsigned int number = 0, room = samples == NULL ? 0 : *count;
    big stamp = (big)now_ms() * 1000;
    for (int i = 0; i < found->process_count && stamp > since; i++) {
        const struct process *process = &found->processes[i];
        if (!process->sampled) continue;
        if (number < room) samples[number] = (struct process_sample){process->pid, stamp, process->util, process->traffic, 0, 0};
        number++;
    }
    *count = number;
    return number == 0 ? NOT_FOUND : number > room ? INSUFFICIENT_SIZE : SUCCESS;
}

status nvmlDeviceGetTotalEccErrors(handle device, int type, int counter, big *errors_counted) {
    DEVICE_CALL(NULL);
    if (!found->has_ecc) return NOT_SUPPORTED;
    if (type < 0 || type > 1 || counter < 0 || counter > 1) return INVALID_ARGUMENT;
    *errors_counted = found->ecc[type][counter];
    return SUCCESS;
}

status nvmlDeviceGetRemappedRows(
    handle device, unsigned int *corrected, unsigned int *uncorrected, unsigned int *pending, unsigned int *failure) {
    DEVICE_CALL(NULL);
    if (!found->has_remapped) return NOT_SUPPORTED;
    *corrected = found->remapped[0];
    *uncorrected = found->remapped[1];
    *pending = found->remapped[2];
    *failure = found->remapped[3];
    return SUCCESS;
}

status nvmlDeviceGetRetiredPagesPendingStatus(handle device, unsigned int *pending) {
    DEVICE_CALL(NULL);
    if (!found->has_retired) return NOT_SUPPORTED;
    *pending = found->retired;
    return SUCCESS;
}

/* ---- events ---- */

#define XID_EVENT 8ULL

struct event_set {
    long since[MAX_DEVICES]; /* of registration, 0 where there is none */
    int stage[MAX_DEVICES], told[MAX_DEVICES];
};

struct event {
    handle device;
    big type, data;
    unsigned int gi, ci;
};

status nvmlEventSetCreate(struct event_set **set) {
    struct scenario all;
    status result = driver_call(__func__, &all);
    if (result == SUCCESS) *set = calloc(1, sizeof **set);
    return result;
}

status nvmlEventSetFree(struct event_set *set) {
    free(set);
    return initialised ? SUCCESS : UNINITIALIZED;
}

status nvmlDeviceGetSupportedEventTypes(handle device, big *types) {
    DEVICE_CALL(NULL);
    *types = XID_EVENT;
    return SUCCESS;
}

status nvmlDeviceRegisterEvents(handle device, big types, struct event_set *set) {
    DEVICE_CALL(NULL);
    if (types != XID_EVENT) return types & ~XID_EVENT ? NOT_SUPPORTED : INVALID_ARGUMENT;
    set->since[device - handles] = now_ms();
    return SUCCESS;
}

/* The next XID that is due, of any device of the set. One of a lost card is told as well. */
static int next_event(const struct scenario *all, struct event_set *set, struct event *event) {
    for (unsigned int i = 0; i < all->count; i++) {
        const struct device *device = &all->devices[i];
        if (set->stage[i] != all->stage) set->stage[i] = all->stage, set->told[i] = 0;
        if (set->since[i] == 0 || set->told[i] >= device->xid_count) continue;
        const struct xid *xid = &device->xids[set->told[i]];
        if (now_ms() - set->since[i] < xid->at_ms) continue;
        set->told[i]++;
        *event = (struct event){&handles[i], XID_EVENT, xid->number, xid->gi, ~0U};
        return 1;
    }
    return 0;
}

status nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned int timeout_ms) {
    long until = now_ms() + timeout_ms;
    for (;;) {
        struct scenario all;
        status result = driver_call(__func__, &all);
        if (result != SUCCESS) return result;
        if (next_event(&all, set, event)) return SUCCESS;
        if (now_ms() >= until) return TIMEOUT;
        pause_ms(5);
    }
}

/* ---- compute mode: kept beside the scenario, as a driver keeps it over the processes that ask ---- */

static FILE *mode_file(const struct scenario *all, const struct device *found, const char *how) {
    char path[600];
    snprintf(path, sizeof path, "%s.mode-%d", getenv("BERTH_NVML_SCENARIO"), (int)(found - all->devices));
    return fopen(path, how);
}

status nvmlDeviceSetComputeMode(handle device, unsigned int mode) {
    DEVICE_CALL(NULL);
    FILE *file = mode_file(&all, found, "w");
    if (file == NULL) return UNKNOWN;
    fprintf(file, "%u\n", mode);
    fclose(file);
    return SUCCESS;
}

status nvmlDeviceGetComputeMode(handle device, unsigned int *mode) {
    DEVICE_CALL(NULL);
    FILE *file = mode_file(&all, found, "r");
    *mode = 0;
    if (file == NULL) return SUCCESS;
    int read = fscanf(file, "%u", mode);
    fclose(file);
    return read == 1 ? SUCCESS : UNKNOWN;
}

/* ---- MIG ---- */

status nvmlDeviceGetMigMode(handle device, unsigned int *current, unsigned int *pending) {
    DEVICE_CALL(NULL);
    if (!found->has_mig) return NOT_SUPPORTED;
    *current = found->mig[0];
    *pending = found->mig[1];
    return SUCCESS;
}

status nvmlDeviceGetMaxMigDeviceCount(handle device, unsigned int *count) {
    DEVICE_CALL(NULL);
    *count = found->has_mig ? MAX_PARTS - 1 : 0;
    return SUCCESS;
}

status nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned int index, handle *mig) {
    DEVICE_CALL(NULL);
    if (!found->has_mig || index >= MAX_PARTS) return INVALID_ARGUMENT;
    if (index >= (unsigned int)found->part_count || found->parts[index].ci == NO_COMPUTE) return NOT_FOUND;
    *mig = &part_handles[(device - handles) * MAX_PARTS + index];
    return SUCCESS;
}

status nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle device, handle *parent) {
    DEVICE_CALL(&part);
    if (part == NULL) return INVALID_ARGUMENT;
    *parent = &handles[found - all.devices];
    return SUCCESS;
}

status nvmlDeviceIsMigDeviceHandle(handle device, unsigned int *is_part) {
    DEVICE_CALL(&part);
    *is_part = part != NULL;
    return SUCCESS;
}

status nvmlDeviceGetGpuInstanceId(handle device, unsigned int *id) {
    DEVICE_CALL(&part);
    if (part == NULL) return NOT_SUPPORTED;
    *id = part->gi;
    return SUCCESS;
}

status nvmlDeviceGetComputeInstanceId(handle device, unsigned int *id) {
    DEVICE_CALL(&part);
    if (part == NULL) return NOT_SUPPORTED;
    *id = part->ci;
    return SUCCESS;
}

struct attributes {
    unsigned int multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    big memory_mb;
};

status nvmlDeviceGetAttributes_v2(handle device, struct attributes *attributes) {
    DEVICE_CALL(&part);
    if (part == NULL) return NOT_SUPPORTED;
    memset(attributes, 0, sizeof *attributes);
    attributes->gpu_slices = attributes->compute_slices = part->slices;
    attributes->memory_mb = part->total >> 20;
    return SUCCESS;
}

status nvmlDeviceGetGpuInstanceById(handle device, unsigned int id, instance *gpu_instance) {
    DEVICE_CALL(NULL);
    for (int i = 0; i < found->part_count; i++)
        if (found->parts[i].gi == id) {
            *gpu_instance = &instances[(device - handles) * MAX_PARTS + i];
            return SUCCESS;
        }
    return NOT_FOUND;
}

struct instance_info {
    handle device;
    unsigned int id, profile, start, size;
};

status nvmlGpuInstanceGetInfo(instance gpu_instance, struct instance_info *info) {
    ptrdiff_t place = gpu_instance - instances;
    if (gpu_instance == NULL || place < 0 || place >= (ptrdiff_t)sizeof instances) return INVALID_ARGUMENT;
    struct scenario all;
    struct device *found = NULL;
    status result = call(__func__, &handles[place / MAX_PARTS], &all, &found, NULL);
    if (result != SUCCESS) return result;
    if (place % MAX_PARTS >= found->part_count) return NOT_FOUND;
    const struct part *part = &found->parts[place % MAX_PARTS];
    *info = (struct instance_info){&handles[place / MAX_PARTS], part->gi, 0, part->start, part->size};
    return SUCCESS;
}

/* ---- MIG: how a card may be cut, and cutting it ---- */

struct profile_info {
    unsigned int version, id, p2p, slices, instances, multiprocessors, engines[5];
    big memory_mb;
    char name[96];
};

struct placement {
    unsigned int start, size;
};

static const struct profile *profile_by_id(const struct device *device, unsigned int id) {
    for (int i = 0; i < device->profile_count; i++)
        if (device->profiles[i].id == id) return &device->profiles[i];
    return NULL;
}

status nvmlDeviceGetGpuInstanceProfileInfoV(handle device, unsigned int index, struct profile_info *info) {
    DEVICE_CALL(NULL);
    if (info->version != (sizeof *info | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    for (int i = 0; i < found->profile_count; i++) {
        const struct profile *profile = &found->profiles[i];
        if (profile->index != index) continue;
        info->id = profile->id;
        info->slices = profile->slices;
        info->instances = profile->most;
        info->memory_mb = profile->total >> 20;
        snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}

status nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    handle device, unsigned int id, struct placement *placements, unsigned int *count) {
    DEVICE_CALL(NULL);
    const struct profile *profile = profile_by_id(found, id);
    if (profile == NULL) return INVALID_ARGUMENT;
    unsigned int number = 0, room = placements == NULL ? 0 : *count;
    for (unsigned int start = 0; start < 32; start++) {
        if (!(profile->starts >> start & 1)) continue;
        if (number < room) placements[number] = (struct placement){start, profile->size};
        number++;
    }
    *count = number;
    return placements != NULL && number > room ? INSUFFICIENT_SIZE : SUCCESS;
}

static int gi_taken(const struct device *device, unsigned int gi) {
    for (int i = 0; i < device->part_count; i++)
        if (device->parts[i].gi == gi) return 1;
    return 0;
}

status nvmlDeviceCreateGpuInstanceWithPlacement(
    handle device, unsigned int id, const struct placement *wanted, instance *gpu_instance) {
    DEVICE_CALL(NULL);
    const struct profile *profile = profile_by_id(found, id);
    if (!found->has_mig || !found->mig[0]) return NOT_SUPPORTED;
    if (profile == NULL || wanted->start > 31 || !(profile->starts >> wanted->start & 1)) return INVALID_ARGUMENT;
    unsigned int slices = profile->slices, gi = 1;
    for (int i = 0; i < found->part_count; i++) {
        const struct part *other = &found->parts[i];
        slices += other->slices;
        if (wanted->start < other->start + other->size && other->start < wanted->start + profile->size)
            return INSUFFICIENT_RESOURCES;
    }
    if (slices > 7 || found->part_count >= MAX_PARTS) return INSUFFICIENT_RESOURCES;
    while (gi_taken(found, gi)) gi++;
    struct part *made = &found->parts[found->part_count];
    memset(made, 0, sizeof *made);
    snprintf(made->profile, sizeof made->profile, "%s", profile->name);
    snprintf(made->uuid, sizeof made->uuid, "MIG-%08lx-%04x-5000-8000-%012x", all.boot, gi, wanted->start);
    made->gi = gi, made->ci = NO_COMPUTE, made->start = wanted->start, made->size = profile->size;
    made->slices = profile->slices, made->total = profile->total;
    *gpu_instance = &instances[(device - handles) * MAX_PARTS + found->part_count++];
    write_parts(getenv("BERTH_NVML_SCENARIO"), &all);
    return SUCCESS;
}

status nvmlDeviceGetGpuInstances(handle device, unsigned int id, instance *listed, unsigned int *count) {
    DEVICE_CALL(NULL);
    const struct profile *profile = profile_by_id(found, id);
    if (profile == NULL) return INVALID_ARGUMENT;
    *count = 0;
    for (int i = 0; i < found->part_count; i++)
        if (strcmp(found->parts[i].profile, profile->name) == 0)
            listed[(*count)++] = &instances[(device - handles) * MAX_PARTS + i];
    return SUCCESS;
}

/* A call for a GPU instance, or for a compute instance: both stand at the place of their part. */
static status inner_call(const char *function, const char *given, const char *base, struct scenario *all, struct device **device, struct part **part) {
    ptrdiff_t place = given - base;
    if (given == NULL || place < 0 || place >= MAX_DEVICES * MAX_PARTS) return INVALID_ARGUMENT;
    status result = call(function, &handles[place / MAX_PARTS], all, device, NULL);
    if (result != SUCCESS) return result;
    if (place % MAX_PARTS >= (*device)->part_count) return NOT_FOUND;
    *part = &(*device)->parts[place % MAX_PARTS];
    return SUCCESS;
}

#define INNER_CALL(GIVEN, BASE)                                                     \
    struct scenario all;                                                            \
    struct device *found = NULL;                                                    \
    struct part *part = NULL;                                                       \
    status result = inner_call(__func__, GIVEN, BASE, &all, &found, &part);         \
    if (result != SUCCESS) return result

status nvmlGpuInstanceDestroy(instance gpu_instance) {
    INNER_CALL(gpu_instance, instances);
    if (part->ci != NO_COMPUTE) return IN_USE;
    int place = (int)(part - found->parts);
    memmove(part, part + 1, (size_t)(found->part_count - place - 1) * sizeof *part);
    found->part_count--;
    write_parts(getenv("BERTH_NVML_SCENARIO"), &all);
    return SUCCESS;
}

struct compute_info {
    unsigned int version, id, slices, instances, multiprocessors, engines[5];
    char name[96];
};

/* Of all kinds that there are, only the one that takes the whole of the GPU instance is told. */
status nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    instance gpu_instance, unsigned int index, unsigned int engine, struct compute_info *info) {
    INNER_CALL(gpu_instance, instances);
    static const unsigned int slices[] = {1, 2, 3, 4, 7, 8, 6};
    if (engine != 0 || index >= sizeof slices / sizeof *slices) return INVALID_ARGUMENT;
    if (info->version != (sizeof *info | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    if (slices[index] != part->slices) return NOT_SUPPORTED;
    info->id = index;
    info->slices = slices[index];
    return SUCCESS;
}

status nvmlGpuInstanceCreateComputeInstance(instance gpu_instance, unsigned int id, char **compute) {
    INNER_CALL(gpu_instance, instances);
    (void)id;
    if (part->ci != NO_COMPUTE) return INSUFFICIENT_RESOURCES;
    part->ci = 0;
    *compute = &computes[gpu_instance - instances];
    write_parts(getenv("BERTH_NVML_SCENARIO"), &all);
    return SUCCESS;
}

status nvmlGpuInstanceGetComputeInstanceById(instance gpu_instance, unsigned int id, char **compute) {
    INNER_CALL(gpu_instance, instances);
    if (part->ci == NO_COMPUTE || part->ci != id) return NOT_FOUND;
    *compute = &computes[gpu_instance - instances];
    return SUCCESS;
}

/* Not while a program uses the part. */
status nvmlComputeInstanceDestroy(char *compute) {
    INNER_CALL(compute, computes);
    if (part->ci == NO_COMPUTE) return NOT_FOUND;
    if (part->used != 0) return IN_USE;
    part->ci = NO_COMPUTE;
    write_parts(getenv("BERTH_NVML_SCENARIO"), &all);
    return SUCCESS;
}
