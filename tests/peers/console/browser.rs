//! Chromium, driven by chromedriver over the WebDriver protocol.

use crate::support::{PATIENCE, eventually};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Whether both programs are on the PATH.
pub fn is_here() -> bool {
    ["chromium", "chromedriver"].iter().all(|name| crate::peer::runs(Command::new(name).arg("--version")))
}

/// A browser with one window; closed when dropped.
pub struct Browser {
    driver: Child,
    /// Kept open: a driver ends if it cannot write its output.
    _output: ChildStdout,
    port: u16,
    session: String,
}

impl Browser {
    pub async fn start() -> Self {
        // Beside many other programs, the port that a driver chose may be taken before it listens there for IPv4 and for IPv6.
        let mut starts = (0..10).map(|_| Self::start_driver());
        let mut browser = starts.find_map(|started| started).expect("a driver that listens");
        let args =
            ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--lang=en"];
        let options = json!({ "args": args });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome", "goog:chromeOptions": options } } });
        let session = browser.command("POST", "", &wanted).await;
        browser.session = format!("/{}", session["sessionId"].as_str().expect("a session"));
        browser
    }

    /// None if the driver ended at once.
    fn start_driver() -> Option<Self> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut output = BufReader::new(driver.stdout.take().expect("piped"));
        let mut lines = Vec::new();
        let port = output.by_ref().lines().map_while(Result::ok).find_map(|line| {
            let port = line.split_once("started successfully on port ").map(|(_, port)| port);
            let port = port.and_then(|port| port.trim_end_matches('.').parse().ok());
            lines.push(line);
            port
        });
        let Some(port) = port else {
            println!("chromedriver ended: {}: {lines:#?}", driver.wait().expect("its status"));
            return None;
        };
        Some(Self { driver, _output: output.into_inner(), port, session: String::new() })
    }

    /// The value in the response to a command; its error fails the test.
    async fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let (port, length) = (self.port, body.len());
        let request = format!(
            "{method} /session{}{path} HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}",
            self.session
        );
        let exchange = async {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
            stream.write_all(request.as_bytes()).await?;
            // The driver leaves the connection open: the head of the response states where it ends.
            let mut stream = tokio::io::BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let start = head.len();
                stream.read_line(&mut head).await?;
                let line = head[start..].trim_end().to_ascii_lowercase();
                if let Some(text) = line.strip_prefix("content-length:") {
                    length = text.trim().parse().expect("a number");
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            std::io::Result::Ok((head, body))
        };
        let (head, body) = timeout(PATIENCE, exchange).await.expect("in time").expect("a response");
        let mut body: Value = serde_json::from_slice(&body).expect("JSON");
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {}", body["value"]["message"]);
        body["value"].take()
    }

    pub async fn open(&self, address: &str) {
        self.command("POST", "/url", &json!({ "url": address })).await;
    }

    /// The result of the body of a function in the page.
    pub async fn run(&self, script: &str, args: &[Value]) -> Value {
        self.command("POST", "/execute/sync", &json!({ "script": script, "args": args })).await
    }

    /// The same for a function that calls its last argument with the result.
    pub async fn run_async(&self, script: &str, args: &[Value]) -> Value {
        self.command("POST", "/execute/async", &json!({ "script": script, "args": args })).await
    }

    pub async fn text(&self) -> String {
        self.run("return document.body.innerText", &[]).await.as_str().expect("text").to_owned()
    }

    /// Waits until the page shows the text.
    pub async fn shows(&self, text: &str) {
        eventually(text, async || match self.text().await {
            shown if shown.contains(text) => Ok(()),
            shown => Err(shown),
        })
        .await;
    }

    /// Waits until the body of a function in the page returns true.
    pub async fn until(&self, script: &str, reason: &str) {
        eventually(&format!("{script}: {reason}"), async || match self.run(script, &[]).await {
            Value::Bool(true) => Ok(()),
            _ => Err(self.text().await),
        })
        .await;
    }

    /// Clicks the first button or link with this text, as a user does.
    pub async fn click(&self, text: &str) {
        // Clicks in the middle, where the header does not cover the element.
        let found = "const found = [...document.querySelectorAll('dialog[open] button, button, a')].find((e) => \
                     e.innerText.trim() === arguments[0] && e.offsetParent); found?.scrollIntoView({ block: 'center' }); return found";
        let element = self.run(found, &[json!(text)]).await;
        let id = element.as_object().and_then(|element| element.values().next()?.as_str());
        let id = id.unwrap_or_else(|| panic!("no {text:?}")).to_owned();
        self.command("POST", &format!("/element/{id}/click"), &json!({})).await;
    }

    /// The same, once the text is there.
    pub async fn click_when_shown(&self, text: &str) {
        self.shows(text).await;
        self.click(text).await;
    }

    /// Gives the console a bearer token, for which it asks.
    pub async fn enter_token(&self, token: &str) {
        self.write("#token", token).await;
        self.click("Continue").await;
    }

    /// Types into the element that a selector finds, after its present text.
    pub async fn write(&self, selector: &str, text: &str) {
        let element = self.run("return document.querySelector(arguments[0])", &[json!(selector)]).await;
        let id = element.as_object().and_then(|element| element.values().next()?.as_str());
        let id = id.unwrap_or_else(|| panic!("no {selector:?}")).to_owned();
        self.command("POST", &format!("/element/{id}/value"), &json!({ "text": text })).await;
    }

    pub async fn back(&self) {
        self.command("POST", "/back", &json!({})).await;
    }

    /// A command of the DevTools protocol.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.command("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": parameters })).await
    }

    /// The width of the window in pixels, and the colours that the user prefers.
    pub async fn look(&self, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// A picture of the window, as PNG in base 64.
    pub async fn picture(&self) -> String {
        self.command("GET", "/screenshot", &Value::Null).await.as_str().expect("base 64").to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium ends with its driver.
        let end = format!(
            "DELETE /session{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            self.session
        );
        if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.write_all(end.as_bytes()).and_then(|()| stream.read(&mut [0; 1]));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
