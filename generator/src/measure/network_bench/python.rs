//! PyTorch, in processes of a Python interpreter.

use super::build::end_of;
use super::{Running, StartError, results::Check};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest time of an answer that needs no compilation.
const ANSWER_LIMIT: Duration = Duration::from_secs(600);
/// How often it is checked whether to stop waiting for an answer.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// PyTorch as it reports itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchVersions {
    /// The version of PyTorch.
    pub torch: String,
    /// The version of cuDNN; `None` without a GPU.
    pub cudnn: Option<u64>,
    /// The name of the GPU that PyTorch uses; `None` without a GPU.
    pub device: Option<String>,
}

/// An interpreter and the script that it runs.
#[derive(Debug, Clone)]
pub struct Python {
    /// The interpreter.
    pub program: PathBuf,
    /// The script, see [`tdc_templates::TORCH_BENCH`].
    pub script: PathBuf,
    /// `CUDA_VISIBLE_DEVICES` of its processes.
    pub visible_devices: Option<String>,
}

impl Python {
    /// Imports PyTorch and asks for its versions. `log` is a file for what it prints besides.
    ///
    /// # Errors
    /// Why PyTorch cannot be used.
    pub fn versions(&self, log: &Path) -> Result<TorchVersions, String> {
        let answer = self.answer(&["probe".as_ref()], log)?;
        serde_json::from_value(answer).map_err(|error| error.to_string())
    }

    /// Relative errors of outputs against PyTorch in float64; `files` are those of the inputs, then of the outputs. An error that is not
    /// finite is infinite.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn check(
        &self,
        module: &Path,
        parameters: &Path,
        batch: u32,
        files: &[PathBuf],
        log: &Path,
    ) -> Result<Vec<f64>, String> {
        let batch = batch.to_string();
        let mut arguments = vec![
            "check".as_ref(),
            module.as_os_str(),
            parameters.as_os_str(),
            batch.as_ref(),
        ];
        arguments.extend(files.iter().map(|file| file.as_os_str()));
        let answer = self.answer(&arguments, log)?;
        let errors = answer["errors"].as_array().cloned().unwrap_or_default();
        let error = |value: &Value| value.as_f64().unwrap_or(f64::INFINITY);
        Ok(errors.iter().map(error).collect())
    }

    /// The only answer of a process.
    fn answer(&self, arguments: &[&std::ffi::OsStr], log: &Path) -> Result<Value, String> {
        let answer = self.start(arguments, log)?.read(ANSWER_LIMIT, &|| false);
        answer.map_err(|error| error.to_string())
    }

    /// Starts a process that times a network; it is ready after at most `limit`, or is ended. It is also ended if `stop` returns true before.
    ///
    /// # Errors
    /// Why it is not ready.
    pub fn time(
        &self,
        [module, parameters]: [&Path; 2],
        [batch, arithmetic, mode]: [&str; 3],
        (limit, stop): (Duration, &dyn Fn() -> bool),
        log: &Path,
    ) -> Result<TorchProcess, StartError> {
        let arguments = [
            "time".as_ref(),
            module.as_os_str(),
            parameters.as_os_str(),
            batch.as_ref(),
            arithmetic.as_ref(),
            mode.as_ref(),
        ];
        let mut process = self.start(&arguments, log)?;
        process.read(limit, stop)?;
        Ok(process)
    }

    fn start(&self, arguments: &[&std::ffi::OsStr], log: &Path) -> Result<TorchProcess, String> {
        let file = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = Command::new(&self.program);
        command.arg(&self.script).args(arguments);
        if let Some(devices) = &self.visible_devices {
            command.env("CUDA_VISIBLE_DEVICES", devices);
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", self.program.display()))?;
        let (sender, answers) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                // Lines that are no objects are printed by libraries.
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                let objects = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
                for answer in objects.filter(Value::is_object) {
                    if sender.send(answer).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(TorchProcess {
            input: child.stdin.take(),
            child,
            answers,
            log: log.to_owned(),
        })
    }
}

/// A process of the script, which ends when this is dropped.
pub struct TorchProcess {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Value>,
    log: PathBuf,
}

impl TorchProcess {
    /// The next answer.
    fn read(&mut self, limit: Duration, stop: &dyn Fn() -> bool) -> Result<Value, StartError> {
        let end = Instant::now() + limit;
        let answer = loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left.min(STOP_EVERY)) {
                Ok(answer) => break answer,
                Err(RecvTimeoutError::Disconnected) => return Err(self.last_message().into()),
                Err(RecvTimeoutError::Timeout) if stop() => {
                    return Err("stopped".to_owned().into());
                }
                Err(RecvTimeoutError::Timeout) if left > STOP_EVERY => {}
                Err(RecvTimeoutError::Timeout) => return Err(StartError::Limit(limit)),
            }
        };
        match answer["failure"].as_str() {
            Some(failure) => Err(failure.to_owned().into()),
            None => Ok(answer),
        }
    }

    /// What the process has written last, and where.
    fn last_message(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.unwrap_or("the process has ended without a message");
        format!("{}; see {}", end_of(last), self.log.display())
    }
}

impl Running for TorchProcess {
    fn check(&self) -> Option<Check> {
        None
    }

    fn time_us(&mut self) -> Result<f64, String> {
        let Some(input) = &mut self.input else {
            return Err("the process has no input".to_owned());
        };
        let asked = input.write_all(b"time\n").and_then(|()| input.flush());
        // If the process has ended, its last answer or its log says why.
        drop(asked);
        let answer = self.read(ANSWER_LIMIT, &|| false);
        let answer = answer.map_err(|error| error.to_string())?;
        answer["us"]
            .as_f64()
            .ok_or_else(|| format!("the answer has no time: {answer}"))
    }
}

impl Drop for TorchProcess {
    fn drop(&mut self) {
        // Neither can fail in a way that matters: the process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A shell script in place of the interpreter.
    fn python(dir: &Path, script: &str) -> Python {
        let path = dir.join("bench.sh");
        std::fs::write(&path, script).unwrap();
        Python {
            program: "/bin/sh".into(),
            script: path,
            visible_devices: Some("3".to_owned()),
        }
    }

    #[test]
    fn a_process_answers_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = "\
echo compiling
echo '{\"ready\": true}'
read line
echo \"{\\\"us\\\": $CUDA_VISIBLE_DEVICES.5}\"
read line
echo '{\"failure\": \"out of memory\"}'
";
        let python = python(dir.path(), script);
        let paths = [Path::new("m.py"), Path::new("p")];
        let limit = Duration::from_secs(20);
        let mut process = python
            .time(paths, ["1", "fp32", "graph"], (limit, &|| false), &log)
            .unwrap();
        assert_eq!(process.time_us(), Ok(3.5));
        assert_eq!(process.time_us(), Err("out of memory".to_owned()));
        let error = process.time_us().unwrap_err();
        assert!(error.starts_with("the process has ended"), "{error}");
    }

    #[test]
    fn a_process_that_is_not_ready_in_time_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let marker = dir.path().join("marker");
        let script = format!("sleep 1\ntouch {}\nsleep 60\n", marker.display());
        let python = python(dir.path(), &script);
        let paths = [Path::new("m.py"), Path::new("p")];
        let limit = Duration::from_millis(250);
        let failed = python.time(paths, ["1", "fp16", "graph"], (limit, &|| false), &log);
        let error = failed.err().unwrap();
        assert_eq!(error, StartError::Limit(limit));
        assert_eq!(
            error.to_string(),
            "not ready within 0.25 seconds; it was ended"
        );
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!marker.exists());
    }

    #[test]
    fn a_start_ends_when_the_run_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let python = python(dir.path(), "sleep 60\n");
        let paths = [Path::new("m.py"), Path::new("p")];
        let before = Instant::now();
        let limit = Duration::from_secs(50);
        let failed = python.time(paths, ["1", "fp16", "graph"], (limit, &|| true), &log);
        let error = failed.err().unwrap();
        assert_eq!(error, StartError::Failed("stopped".to_owned()));
        assert!(before.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_missing_package_is_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = "echo \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n";
        let error = python(dir.path(), script).versions(&log).unwrap_err();
        assert!(error.starts_with("ModuleNotFoundError: No module named 'torch'; see "));
        let versions = "echo '{\"torch\": \"2.9\", \"cudnn\": null, \"device\": null}'\n";
        let versions = python(dir.path(), versions).versions(&log).unwrap();
        assert_eq!(versions.torch, "2.9");
    }
}
