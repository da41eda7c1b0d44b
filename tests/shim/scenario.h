/* A scenario: what an NVIDIA driver and its cards do, as lines of a text file. "#" begins a comment; words are divided by
 * blanks. Before the first `device` a line is about the driver, after it about that device, in the order of indices.
 *
 *   [NAME]                        a stage. Without any there is one. The file FILE.stage beside it names the stage that
 *                                 is played; the first one where there is no such file. Lines before the first stage
 *                                 are no part of any.
 *   boot N                        the driver was loaded anew: where N changes under a running process its calls fail,
 *                                 until it shuts the library down and starts it
 *   device UUID NAME TOTAL USED UTILISATION [error=E] [temperature=N] [traffic=N]      traffic: of its memory, per cent
 *                                 NAME has "_" for blanks; "-" is an empty text. TOTAL and USED are MiB, or bytes with
 *                                 a B; any number may be negative, or n/a (all bits set, NVML's "not available").
 *                                 error=E: every call for this device fails so, its handle as well
 *   hang FUNCTION [for=MS]        it returns after so long, or when the scenario no longer says so
 *   fail FUNCTION E               it fails; E is NVML's own name without NVML_ERROR_, or a number
 *   missing FUNCTION              it fails as functions do that this driver's library does not have
 *   crash FUNCTION                the process dies in it
 *   ecc [corrected=N] [uncorrected=N] [lifetime_corrected=N] [lifetime_uncorrected=N]       without it: not supported
 *   remapped [corrected=N] [uncorrected=N] [pending=N] [failure=N]     rows of memory;      without it: not supported
 *   retired pending=N             pages of memory (cards before Ampere);                    without it: not supported
 *   samples                       the driver samples what programs do;                      without it: not supported
 *   process PID compute|graphics MEMORY [util=N] [traffic=N]      with either there is a sample of it at every call
 *   xid NUMBER [at=MS] [gi=N]     MS after the device's events were registered for
 *   mig CURRENT PENDING           0 or 1;                                                   without it: not supported
 *   part UUID PROFILE gi=N [ci=N] [start=N] [size=N] [slices=N] [total=N] [used=N] [error=E]     a MIG device; ci=n/a: a
 *                                 GPU instance without a compute instance, which is no device yet
 *   profile NAME index=N id=N slices=N size=N total=N most=N starts=A,B,C     how parts may be cut;  without any: not at all
 *
 * What a process cuts stands in the file FILE.parts beside it, with the boot in which it was done: after another boot the
 * parts are those of the scenario again, as parts are lost in a reboot.
 *
 * FUNCTION is the name that the library exports (nvmlInitWithFlags, nvmlDeviceGetMemoryInfo_v2). What is misspelt makes
 * the scenario unreadable: the driver does not start, and `berth_scenario_error` tells the line.
 */

#ifndef BERTH_SCENARIO_H
#define BERTH_SCENARIO_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 16
#define MAX_PARTS 8
#define MAX_PROFILES 12
#define NO_COMPUTE (~0U)
#define MAX_RULES 24
#define MAX_LISTED 24

#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define DRIVER_NOT_LOADED 9
#define TIMEOUT 10
#define FUNCTION_NOT_FOUND 13
#define IN_USE 19
#define INSUFFICIENT_RESOURCES 23
#define ARGUMENT_VERSION_MISMATCH 25
#define UNKNOWN 999

typedef int status;
typedef unsigned long long big;

enum deed { HANG, FAIL, CRASH };

struct rule {
    char function[48];
    enum deed deed;
    long ms; /* of HANG: negative is for ever */
    status error;
};

struct rules {
    struct rule all[MAX_RULES];
    int count;
};

struct process {
    unsigned int pid;
    int graphics, sampled;
    unsigned int util, traffic;
    big memory;
};

struct xid {
    big number;
    long at_ms;
    unsigned int gi;
};

struct part {
    char uuid[96], profile[32];
    unsigned int gi, ci, start, size, slices;
    big total, used;
    status error;
};

struct profile {
    char name[32];
    unsigned int index, id, slices, size, most, starts; /* starts: a bit each */
    big total;
};

struct device {
    char uuid[96], name[96];
    big total, used;
    unsigned int utilisation, temperature, traffic;
    status error;
    int has_ecc, has_remapped, has_retired, has_mig, has_samples;
    big ecc[2][2]; /* corrected, uncorrected; volatile, aggregate: in NVML's own order */
    unsigned int remapped[4], retired, mig[2];
    struct process processes[MAX_LISTED];
    struct xid xids[MAX_LISTED];
    struct part parts[MAX_PARTS];
    struct profile profiles[MAX_PROFILES];
    int process_count, xid_count, part_count, profile_count;
    struct rules rules;
};

struct scenario {
    struct device devices[MAX_DEVICES];
    unsigned int count;
    struct rules rules;
    long boot;
    int stage; /* the number of the stage that is played */
};

static const struct {
    const char *name, *words;
    status code;
} errors[] = {
    {"SUCCESS", "Success", 0},
    {"UNINITIALIZED", "Uninitialized", 1},
    {"INVALID_ARGUMENT", "Invalid Argument", 2},
    {"NOT_SUPPORTED", "Not Supported", 3},
    {"NO_PERMISSION", "Insufficient Permissions", 4},
    {"NOT_FOUND", "Not Found", 6},
    {"INSUFFICIENT_SIZE", "Insufficient Size", 7},
    {"DRIVER_NOT_LOADED", "Driver Not Loaded", 9},
    {"TIMEOUT", "Timeout", 10},
    {"FUNCTION_NOT_FOUND", "Function Not Found", 13},
    {"CORRUPTED_INFOROM", "Corrupted infoROM", 14},
    {"GPU_IS_LOST", "GPU is lost", 15},
    {"RESET_REQUIRED", "GPU requires reset", 16},
    {"OPERATING_SYSTEM", "The operating system has blocked the request", 17},
    {"LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch", 18},
    {"IN_USE", "In use by another client", 19},
    {"MEMORY", "Insufficient Memory", 20},
    {"NO_DATA", "No data", 21},
    {"INSUFFICIENT_RESOURCES", "Insufficient Resources", 23},
    {"ARGUMENT_VERSION_MISMATCH", "Argument version mismatch", 25},
    {"NOT_READY", "Not ready", 27},
    {"UNKNOWN", "Unknown Error", 999},
};
#define ERRORS (sizeof errors / sizeof *errors)

static const char *const functions[] = {
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceSetComputeMode",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
    "nvmlDeviceIsMigDeviceHandle",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlGpuInstanceGetInfo",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlDeviceGetGpuInstances",
    "nvmlGpuInstanceDestroy",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceGetComputeInstanceById",
    "nvmlComputeInstanceDestroy",
};
#define FUNCTIONS (sizeof functions / sizeof *functions)

static int error_named(const char *name, status *code) {
    for (size_t i = 0; i < ERRORS; i++)
        if (strcmp(errors[i].name, name) == 0) return *code = errors[i].code, 1;
    char *end;
    long number = strtol(name, &end, 10);
    *code = (status)number;
    return *name != '\0' && *end == '\0';
}

static int number_of(const char *text, big *number) {
    if (strcmp(text, "n/a") == 0) return *number = ~0ULL, 1;
    char *end;
    *number = *text == '-' ? (big)strtoll(text, &end, 10) : strtoull(text, &end, 10);
    return *text != '\0' && *end == '\0';
}

static int small_of(const char *text, unsigned int *number) {
    big found;
    int well = number_of(text, &found);
    *number = (unsigned int)found;
    return well;
}

/* MiB, or bytes where a B follows. */
static int bytes_of(const char *text, big *bytes) {
    char digits[40];
    size_t length = strlen(text);
    int raw = length > 1 && length < sizeof digits && text[length - 1] == 'B';
    snprintf(digits, sizeof digits, "%s", text);
    if (raw) digits[length - 1] = '\0';
    if (!number_of(digits, bytes)) return 0;
    if (!raw && *bytes != ~0ULL) *bytes <<= 20;
    return 1;
}

static void text_of(char *into, size_t size, const char *text) {
    snprintf(into, size, "%s", strcmp(text, "-") == 0 ? "" : text);
}

#define WORDS 16

/* The value of KEY among the words from `first`, NULL where it is not there. `known` counts the words that were asked for. */
static const char *option(char **words, int count, int first, const char *key, int *known) {
    size_t length = strlen(key);
    for (int i = first; i < count; i++)
        if (strncmp(words[i], key, length) == 0 && words[i][length] == '=') return (*known)++, words[i] + length + 1;
    return NULL;
}

#define OPTION(KEY, READ, INTO)                                                     \
    do {                                                                            \
        const char *value = option(words, count, first, KEY, &known);               \
        if (value != NULL && !READ(value, INTO)) return 0;                          \
    } while (0)

static int rule_line(struct rules *rules, char **words, int count) {
    if (count < 2 || rules->count >= MAX_RULES) return 0;
    size_t known_function = 0;
    while (known_function < FUNCTIONS && strcmp(functions[known_function], words[1]) != 0) known_function++;
    if (known_function == FUNCTIONS) return 0;
    struct rule *rule = &rules->all[rules->count++];
    snprintf(rule->function, sizeof rule->function, "%s", words[1]);
    rule->ms = -1;
    int known = 0, first = 2;
    if (strcmp(words[0], "hang") == 0) {
        big ms = 0;
        rule->deed = HANG;
        const char *value = option(words, count, first, "for", &known);
        if (value != NULL) {
            if (!number_of(value, &ms)) return 0;
            rule->ms = (long)ms;
        }
        return count == 2 + known;
    }
    if (strcmp(words[0], "crash") == 0) return rule->deed = CRASH, count == 2;
    rule->deed = FAIL;
    if (strcmp(words[0], "missing") == 0) return rule->error = FUNCTION_NOT_FOUND, count == 2;
    return count == 3 && error_named(words[2], &rule->error);
}

static int device_line(struct device *device, char **words, int count) {
    if (count < 6) return 0;
    text_of(device->uuid, sizeof device->uuid, words[1]);
    text_of(device->name, sizeof device->name, words[2]);
    for (char *sign = device->name; *sign; sign++)
        if (*sign == '_') *sign = ' ';
    device->temperature = 40;
    int known = 0, first = 6;
    OPTION("error", error_named, &device->error);
    OPTION("temperature", small_of, &device->temperature);
    OPTION("traffic", small_of, &device->traffic);
    return count == first + known && bytes_of(words[3], &device->total) && bytes_of(words[4], &device->used) &&
           small_of(words[5], &device->utilisation);
}

static int memory_line(struct device *device, char **words, int count) {
    int known = 0, first = 1;
    if (strcmp(words[0], "ecc") == 0) {
        device->has_ecc = 1;
        OPTION("corrected", number_of, &device->ecc[0][0]);
        OPTION("lifetime_corrected", number_of, &device->ecc[0][1]);
        OPTION("uncorrected", number_of, &device->ecc[1][0]);
        OPTION("lifetime_uncorrected", number_of, &device->ecc[1][1]);
    } else if (strcmp(words[0], "remapped") == 0) {
        device->has_remapped = 1;
        OPTION("corrected", small_of, &device->remapped[0]);
        OPTION("uncorrected", small_of, &device->remapped[1]);
        OPTION("pending", small_of, &device->remapped[2]);
        OPTION("failure", small_of, &device->remapped[3]);
    } else {
        device->has_retired = 1;
        OPTION("pending", small_of, &device->retired);
    }
    return count == first + known;
}

static int process_line(struct device *device, char **words, int count) {
    if (count < 4 || device->process_count >= MAX_LISTED) return 0;
    struct process *process = &device->processes[device->process_count++];
    process->graphics = strcmp(words[2], "graphics") == 0;
    int known = 0, first = 4;
    OPTION("util", small_of, &process->util);
    OPTION("traffic", small_of, &process->traffic);
    process->sampled = known > 0;
    return count == first + known && (process->graphics || strcmp(words[2], "compute") == 0) &&
           small_of(words[1], &process->pid) && bytes_of(words[3], &process->memory);
}

static int xid_line(struct device *device, char **words, int count) {
    if (count < 2 || device->xid_count >= MAX_LISTED) return 0;
    struct xid *xid = &device->xids[device->xid_count++];
    big at = 0;
    xid->gi = ~0U;
    int known = 0, first = 2;
    OPTION("at", number_of, &at);
    OPTION("gi", small_of, &xid->gi);
    xid->at_ms = (long)at;
    return count == first + known && number_of(words[1], &xid->number);
}

static int part_line(struct device *device, char **words, int count) {
    if (count < 3 || device->part_count >= MAX_PARTS) return 0;
    struct part *part = &device->parts[device->part_count++];
    text_of(part->uuid, sizeof part->uuid, words[1]);
    text_of(part->profile, sizeof part->profile, words[2]);
    part->size = part->slices = 1;
    int known = 0, first = 3;
    OPTION("gi", small_of, &part->gi);
    OPTION("ci", small_of, &part->ci);
    OPTION("start", small_of, &part->start);
    OPTION("size", small_of, &part->size);
    OPTION("slices", small_of, &part->slices);
    OPTION("total", bytes_of, &part->total);
    OPTION("used", bytes_of, &part->used);
    OPTION("error", error_named, &part->error);
    return count == first + known;
}

static int starts_of(const char *text, unsigned int *starts) {
    for (*starts = 0; *text != '\0';) {
        char *end;
        unsigned long start = strtoul(text, &end, 10);
        if (end == text || start > 31 || (*end != ',' && *end != '\0')) return 0;
        *starts |= 1u << start;
        text = *end == ',' ? end + 1 : end;
    }
    return *starts != 0;
}

static int profile_line(struct device *device, char **words, int count) {
    if (count < 2 || device->profile_count >= MAX_PROFILES) return 0;
    struct profile *profile = &device->profiles[device->profile_count++];
    text_of(profile->name, sizeof profile->name, words[1]);
    int known = 0, first = 2;
    OPTION("index", small_of, &profile->index);
    OPTION("id", small_of, &profile->id);
    OPTION("slices", small_of, &profile->slices);
    OPTION("size", small_of, &profile->size);
    OPTION("total", bytes_of, &profile->total);
    OPTION("most", small_of, &profile->most);
    OPTION("starts", starts_of, &profile->starts);
    return count == first + known && known == 7;
}

static int words_line(struct scenario *found, char **words, int count) {
    struct device *device = found->count ? &found->devices[found->count - 1] : NULL;
    const char *word = words[0];
    if (strcmp(word, "boot") == 0) return count == 2 && (found->boot = atol(words[1])) > 0;
    if (strcmp(word, "device") == 0)
        return found->count < MAX_DEVICES && device_line(&found->devices[found->count++], words, count);
    if (strcmp(word, "hang") == 0 || strcmp(word, "fail") == 0 || strcmp(word, "missing") == 0 || strcmp(word, "crash") == 0)
        return rule_line(device ? &device->rules : &found->rules, words, count);
    if (device == NULL) return 0;
    if (strcmp(word, "ecc") == 0 || strcmp(word, "remapped") == 0 || strcmp(word, "retired") == 0)
        return memory_line(device, words, count);
    if (strcmp(word, "samples") == 0) return device->has_samples = 1, count == 1;
    if (strcmp(word, "process") == 0) return process_line(device, words, count);
    if (strcmp(word, "xid") == 0) return xid_line(device, words, count);
    if (strcmp(word, "part") == 0) return part_line(device, words, count);
    if (strcmp(word, "profile") == 0) return profile_line(device, words, count);
    device->has_mig = strcmp(word, "mig") == 0;
    return device->has_mig && count == 3 && small_of(words[1], &device->mig[0]) && small_of(words[2], &device->mig[1]);
}

/* One line; 0 where it cannot be read. A line of another stage is read too, into nothing that lasts. */
static int line_of(struct scenario *found, char *line) {
    char *words[WORDS], *rest = NULL;
    int count = 0;
    for (char *word = strtok_r(line, " \t\r\n", &rest); word != NULL && *word != '#'; word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (count == WORDS) return 0;
        words[count++] = word;
    }
    return count == 0 || words_line(found, words, count);
}

/* The stage that is played, "" for the first. */
static void stage_of(const char *path, char *stage, size_t size) {
    char beside[4096];
    snprintf(beside, sizeof beside, "%s.stage", path);
    FILE *file = fopen(beside, "r");
    *stage = '\0';
    if (file == NULL) return;
    if (fgets(stage, (int)size, file) == NULL) *stage = '\0';
    stage[strcspn(stage, "\r\n")] = '\0';
    fclose(file);
}

/* The parts that were cut in this boot, in place of the scenario's; 0 where the file beside it cannot be read. */
static int cut_parts_of(const char *path, struct scenario *found) {
    char beside[4096], line[1024];
    snprintf(beside, sizeof beside, "%s.parts", path);
    FILE *file = fopen(beside, "r");
    if (file == NULL) return 1;
    struct device *device = NULL;
    long boot = -1;
    int well = fscanf(file, "boot %ld\n", &boot) == 1;
    while (well && boot == found->boot && fgets(line, sizeof line, file) != NULL) {
        char *words[WORDS], *rest = NULL;
        int count = 0;
        for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < WORDS; word = strtok_r(NULL, " \n", &rest))
            words[count++] = word;
        if (count == 2 && strcmp(words[0], "card") == 0) {
            device = NULL;
            for (unsigned int i = 0; i < found->count; i++)
                if (strcmp(found->devices[i].uuid, words[1]) == 0) device = &found->devices[i];
            if (device != NULL) device->part_count = 0, memset(device->parts, 0, sizeof device->parts);
        } else if (device != NULL) {
            well = count > 0 && part_line(device, words, count);
        }
    }
    fclose(file);
    return well;
}

static void write_parts(const char *path, const struct scenario *found) {
    char beside[4096], fresh[4104];
    snprintf(beside, sizeof beside, "%s.parts", path);
    snprintf(fresh, sizeof fresh, "%s.new", beside);
    FILE *file = fopen(fresh, "w");
    if (file == NULL) abort();
    fprintf(file, "boot %ld\n", found->boot);
    for (unsigned int i = 0; i < found->count; i++) {
        const struct device *device = &found->devices[i];
        fprintf(file, "card %s\n", device->uuid);
        for (int j = 0; j < device->part_count; j++) {
            const struct part *part = &device->parts[j];
            fprintf(file, "part %s %s gi=%u ", part->uuid, part->profile, part->gi);
            if (part->ci == NO_COMPUTE) fprintf(file, "ci=n/a ");
            else fprintf(file, "ci=%u ", part->ci);
            fprintf(file, "start=%u size=%u slices=%u total=%lluB used=%lluB\n", part->start, part->size, part->slices, part->total, part->used);
        }
    }
    fclose(file);
    if (rename(fresh, beside) != 0) abort();
}

/* Reads the played stage of the file, and checks all. 0, the number of a line that cannot be read, or -1: no such file, or
 * no such stage. */
static int scenario_of(const char *path, struct scenario *found) {
    static __thread struct scenario other;
    char wanted[64], line[1024];
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    if (file == NULL) return -1;
    memset(found, 0, sizeof *found);
    stage_of(path, wanted, sizeof wanted);
    int number = 0, stages = 0, seen = 0, bad = 0;
    struct scenario *into = found;
    while (bad == 0 && fgets(line, sizeof line, file) != NULL) {
        number++;
        if (line[0] != '[') {
            if (!line_of(into, line)) bad = number;
            continue;
        }
        size_t end = strcspn(line, "]\n");
        int played = (*wanted == '\0' && stages == 0) || (strlen(wanted) == end - 1 && strncmp(line + 1, wanted, end - 1) == 0);
        if (line[end] != ']' || end < 2) bad = number;
        stages++;
        into = played ? found : &other;
        memset(into, 0, sizeof *into);
        if (played) found->stage = seen = stages;
    }
    fclose(file);
    if (bad == 0 && stages > 0 && !seen) return -1;
    if (bad == 0 && stages == 0 && *wanted != '\0') return -1;
    if (bad == 0 && !cut_parts_of(path, found)) return number;
    return bad;
}

#endif
